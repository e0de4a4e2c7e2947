#include "backend/precision.h"

#include "core/log.h"

namespace tandem::backend {

DType compute_type(Precision precision, const Backend& backend) {
  const bool native = backend.traits().computes(DType::bf16);
  require(precision != Precision::bf16 || native,
          "precision = \"bf16\" needs a processor with AVX512_BF16 or AMX, which this one is not; use \"f32\" or "
          "\"auto\"");
  require(precision != Precision::f32 || backend.traits().computes(DType::f32),
          "a GPU computes in bf16 with f32 masters: use precision = \"bf16\" or \"auto\", or device = \"cpu\"");
  if (precision == Precision::automatic) {
    log::info("precision: {}", native ? "bf16, which the hardware computes natively"
                                      : "f32, because this processor has neither AVX512_BF16 nor AMX");
    return native ? DType::bf16 : DType::f32;
  }
  return precision == Precision::bf16 ? DType::bf16 : DType::f32;
}

}  // namespace tandem::backend
