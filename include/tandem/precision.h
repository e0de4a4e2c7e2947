#pragma once

#include <cstdint>

namespace tandem {

// The type in which matrix products compute.
enum class Precision : uint8_t {
  automatic,  // bf16 if the hardware computes it natively, else f32
  f32,
  bf16,
};

}  // namespace tandem
