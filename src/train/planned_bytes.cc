#include "train/planned_bytes.h"

#include "backend/planning.h"

namespace tandem::train {

size_t planned_bytes(const backend::Backend& backend, const model::ModelConfig& config, DType compute,
                     const BatchLayout& layout, const PlannedPass& pass) {
  backend::PlanningBackend planning(backend);
  const model::Transformer model(planning, config);
  const ModelState weights(planning, model.parameters(), compute, false);
  Arena arena([&planning](size_t bytes) { return planning.allocate(bytes); });
  arena.reserve(size_t{1} << 46);  // one chunk, so that the peak is the sum of what is taken
  backend::LossTotals totals;
  StepInput input;
  pass(model, weights, layout.batch(&input, Memory::device), &totals, arena);
  return arena.peak_bytes();
}

}  // namespace tandem::train
