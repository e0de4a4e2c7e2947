#include "train/stepper.h"

#include <utility>

#include "train/planned_bytes.h"

namespace tandem::train {

Stepper::Stepper(backend::Backend& backend, const model::Transformer& model, const ModelState& weights,
                 optim::Optimizer& optimizer, GradientUpdate& update, float smoothing, std::vector<BatchLayout> layouts)
    : backend_(backend),
      model_(model),
      weights_(weights),
      optimizer_(optimizer),
      update_(update),
      smoothing_(smoothing),
      arena_([&backend](size_t bytes) { return backend.allocate(bytes); }),
      work_(backend, model.config(), std::move(layouts)),
      results_(backend.make_outbox(sizeof(StepResult))) {
  set_updates(0);
}

void Stepper::give(const data::TrainStep& step, StepInput input, bool recorded) {
  static const std::vector<data::HostBatch> nothing{
      data::pack({}, {})};  // if this rank has no sentence: its part of sums is zero
  const std::vector<data::HostBatch>& batches = step.micro_batches.empty() ? nothing : step.micro_batches;
  for (const data::HostBatch& batch : batches) {
    const bool first = &batch == &batches.front(), last = &batch == &batches.back();
    input.state.first_source = batch.source.first;
    input.state.first_target = batch.target.first;
    const int kind = (first ? 1 : 0) + (last ? 2 : 0);
    work_.give(batch, step, input, kind, recorded, [this, first, last](const BatchWork::Given& given) {
      arena_.reset();
      if (first) {
        begin(given);
      }
      add_gradients(given.batch, first, last);
      if (last) {
        update_.finish(optimizer_, given.ids, given.input, result());
        backend_.stamp(&result()->clock.end);
      }
    });
  }
  results_->post();
}

void Stepper::begin(const BatchWork::Given& given) {
  static_assert(sizeof(StepSums) % sizeof(int32_t) == 0);
  backend_.stamp(&result()->clock.begin);
  backend_.fill_zero(
      make_view(&result()->sums, DType::i32, 1, sizeof(StepSums) / sizeof(int32_t), weights_.masters().memory));
  update_.begin(given.ids);
}

void Stepper::add_gradients(const model::Batch& batch, bool first, bool last) {
  model::Gradients gradients = update_.gradients(last);
  gradients.accumulate = !first;
  model_.train(weights_.weights(), gradients, batch, smoothing_, &result()->sums.totals, arena_);
}

StepResult Stepper::take() {
  StepResult result;
  results_->take(&result);
  return result;
}

void Stepper::set_updates(int64_t updates) {
  StepResult fresh;
  fresh.update.updates = static_cast<uint32_t>(updates);
  static_assert(sizeof fresh % sizeof(int32_t) == 0);
  backend_.upload(
      make_view(results_->block(), DType::i32, 1, sizeof fresh / sizeof(int32_t), weights_.masters().memory), &fresh);
}

int64_t Stepper::rows_of(const data::TrainStep& step) const {
  int64_t rows = 0;
  for (const data::HostBatch& batch : step.micro_batches) {
    rows += work_.rows_of(batch);
  }
  return rows;
}

size_t planned_arena_bytes(const backend::Backend& backend, const model::ModelConfig& config, DType compute,
                           const BatchLayout& layout) {
  return planned_bytes(backend, config, compute, layout,
                       [](const model::Transformer& model, const ModelState& weights, const model::Batch& batch,
                          backend::LossTotals* totals, Arena& arena) {
                         model.train(weights.weights(), weights.gradients(), batch, 0, totals, arena);
                       });
}

}  // namespace tandem::train
