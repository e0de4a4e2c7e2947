// Vectors of 32 bytes in the compiler's own vector types: explicit lanes, so that the order of every sum is written
// in the source and does not depend on the address or on the optimizer.
//
// Elements in memory are float, bf16 or double; lanes are float or double (A = Wide<T>).
#pragma once

#include <cstdint>
#include <cstring>

#include "backend/cpu/dispatch.h"
#include "backend/cpu/vector_math.h"

namespace tandem::backend {

template <class A>
struct VectorType {
  typedef A type __attribute__((vector_size(32)));
};
template <class A>
using Vec = typename VectorType<A>::type;

template <class A>
constexpr int64_t kLanes = 32 / sizeof(A);

// The lanes of a vector that are in memory: all of them, or the first `count`.
struct Whole {};
struct Part {
  int64_t count;
};

template <class A>
Vec<A> splat(A value) {
  return Vec<A>{} + value;
}

template <class T>
Vec<Wide<T>> load(const T* from, Whole = {}) {
  if constexpr (std::is_same_v<T, bf16>) {
    typedef uint16_t Halves __attribute__((vector_size(16)));
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    return reinterpret_cast<Vec<float>>(__builtin_convertvector(halves, Vec<uint32_t>) << 16);
  } else {
    Vec<T> vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
  }
}

// Lanes past the part are 0.
template <class T>
Vec<Wide<T>> load(const T* from, Part part) {
  T lanes[kLanes<Wide<T>>] = {};
  std::memcpy(static_cast<void*>(lanes), from, static_cast<size_t>(part.count) * sizeof(T));
  return load(lanes);
}

template <class T>
void store(T* to, Vec<Wide<T>> value, Whole = {}) {
  if constexpr (std::is_same_v<T, bf16>) {
    typedef uint16_t Halves __attribute__((vector_size(16)));
    const Vec<uint32_t> wide = reinterpret_cast<Vec<uint32_t>>(value);
    const Vec<uint32_t> rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16;
    const Vec<uint32_t> quiet_nan = (wide >> 16) | 0x40;
    const Halves halves = __builtin_convertvector(value != value ? quiet_nan : rounded, Halves);
    std::memcpy(static_cast<void*>(to), &halves, sizeof halves);
  } else {
    std::memcpy(to, &value, sizeof value);
  }
}

template <class T>
void store(T* to, Vec<Wide<T>> value, Part part) {
  T lanes[kLanes<Wide<T>>];
  store(lanes, value);
  std::memcpy(static_cast<void*>(to), lanes, static_cast<size_t>(part.count) * sizeof(T));
}

// (x + kGrid) - kGrid is the multiple of 2^-52 that is nearest to x, and x itself for f32 numbers of 2^-28 and more.
// Such multiples add up in f64 without rounding, in any order and grouping, as long as their sums stay below 2.
constexpr double kGrid = 1.5;

// to += value. If the memory's type G is wider than the lanes, the value is first rounded to the grid.
template <class A, class G>
void add_to(G* to, Vec<A> value, Whole whole = {}) {
  if constexpr (std::is_same_v<A, G>) {
    store(to, load(to, whole) + value, whole);
  } else {
    typedef G Wider __attribute__((vector_size(kLanes<A> * sizeof(G))));
    Wider sum;
    std::memcpy(&sum, to, sizeof sum);
    sum += (__builtin_convertvector(value, Wider) + kGrid) - kGrid;
    std::memcpy(to, &sum, sizeof sum);
  }
}

template <class A, class G>
void add_to(G* to, Vec<A> value, Part part) {
  for (int64_t i = 0; i < part.count; ++i) {
    const G wide = static_cast<G>(value[i]);
    to[i] += std::is_same_v<A, G> ? wide : (wide + kGrid) - kGrid;
  }
}

// The value with lanes past the part replaced by `other`.
template <class V, class A>
V keep(V value, A, Whole) {
  return value;
}
template <class V, class A>
V keep(V value, A other, Part part) {
  for (int64_t i = part.count; i < kLanes<A>; ++i) {
    value[i] = other;
  }
  return value;
}

// The value rounded to T.
template <class T>
Vec<Wide<T>> round_to(Vec<Wide<T>> value) {
  if constexpr (std::is_same_v<T, bf16>) {
    const Vec<uint32_t> wide = reinterpret_cast<Vec<uint32_t>>(value);
    const Vec<uint32_t> rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) & 0xFFFF0000;
    return value != value ? value : reinterpret_cast<Vec<float>>(rounded);
  } else {
    return value;
  }
}

template <class V>
V maximum(V a, V b) {
  return a > b ? a : b;
}

inline float sum_lanes(Vec<float> v) { return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7])); }
inline double sum_lanes(Vec<double> v) { return (v[0] + v[2]) + (v[1] + v[3]); }

template <class A>
A max_lanes(Vec<A> v) {
  A most = v[0];
  for (int64_t i = 1; i < kLanes<A>; ++i) {
    most = v[i] > most ? v[i] : most;
  }
  return most;
}

template <class A>
Vec<A> square_root(Vec<A> v) {
  for (int64_t i = 0; i < kLanes<A>; ++i) {
    v[i] = std::sqrt(v[i]);
  }
  return v;
}

inline Vec<float> fast_exp(Vec<float> x) { return exp_of<Vec<float>, Vec<uint32_t>>(x); }
inline Vec<double> fast_exp(Vec<double> x) {
  for (int64_t i = 0; i < kLanes<double>; ++i) {
    x[i] = std::exp(x[i]);
  }
  return x;
}

// Calls body(i, Whole) for the whole vectors of [0, n) and body(i, Part) for the rest.
template <class A, class Body>
inline __attribute__((always_inline)) void for_vectors(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes<A> <= n; i += kLanes<A>) {
    body(i, Whole{});
  }
  if (i < n) {
    body(i, Part{n - i});
  }
}

}  // namespace tandem::backend
