// What a pass takes from the arena, found out without computing it.
#pragma once

#include <functional>

#include "train/batch_layout.h"
#include "train/model_state.h"

namespace tandem {

using PlannedPass = std::function<void(const Transformer&, const ModelState&, const Batch&, LossTotals*, Arena&)>;

// Bytes of the largest arena that `pass` needs over one batch of this layout.
size_t planned_bytes(const Backend& backend, const ModelConfig& model, DType compute, const BatchLayout& layout,
                     const PlannedPass& pass);

}  // namespace tandem
