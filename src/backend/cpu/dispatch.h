// Turns the run-time element type of a view into the type parameter of a kernel.
#pragma once

#include <type_traits>

#include "tensor/view.h"

namespace tandem::backend {

// The type that arithmetic on elements of type T is done in; also the master type that belongs to T.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Calls body.operator()<T>() with the compute type T: dispatch(x.dtype, [&]<class T>() { ... }).
template <class Body>
void dispatch(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f32:
      return body.template operator()<float>();
    case DType::bf16:
      return body.template operator()<bf16>();
    case DType::f64:
      return body.template operator()<double>();
    case DType::i32:
      fail("arithmetic on a view of {}", name_of(dtype));
  }
}

// The same for the master type: f32 or f64.
template <class Body>
void dispatch_master(DType dtype, const Body& body) {
  require(dtype == DType::f32 || dtype == DType::f64, "masters must be f32 or f64, not {}", name_of(dtype));
  dtype == DType::f64 ? body.template operator()<double>() : body.template operator()<float>();
}

// The same for G, the type of sums over rows of type T: the master type or f64.
template <class T, class Body>
void dispatch_sums(DType dtype, const Body& body) {
  if (dtype == DType::f64) {
    return body.template operator()<double>();
  }
  require(dtype == dtype_of<Wide<T>>(), "sums of {} over rows of {}", name_of(dtype), name_of(dtype_of<T>()));
  body.template operator()<Wide<T>>();
}

}  // namespace tandem::backend
