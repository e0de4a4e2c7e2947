// What a pass takes from the arena, found out without computing it.
#pragma once

#include <functional>

#include "train/batch_layout.h"
#include "train/model_state.h"

namespace tandem::train {

using PlannedPass = std::function<void(const model::Transformer&, const ModelState&, const model::Batch&,
                                       backend::LossTotals*, Arena&)>;

// Bytes of the largest arena that `pass` needs over one batch of this layout.
size_t planned_bytes(const backend::Backend& backend, const model::ModelConfig& model, DType compute,
                     const BatchLayout& layout, const PlannedPass& pass);

}  // namespace tandem::train
