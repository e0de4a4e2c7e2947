#include "tensor/view.h"

namespace tandem::inline tensor {

const char* name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
  }
  return "unknown";
}

}  // namespace tandem::inline tensor
