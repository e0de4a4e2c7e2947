// The one order of additions over ranks.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace tandem::dist {

// out[i] = parts[0][i] + parts[1][i] + ... for i < count, added from the left. bf16 is added in f32 and rounded once,
// i32 wraps. `out` may be one of the parts.
void sum_in_order(void* out, std::span<const void* const> parts, int64_t count, DType type);

}  // namespace tandem::dist
