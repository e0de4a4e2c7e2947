#include "train/stepper.h"

#include <algorithm>

#include "backend/planning.h"
#include "core/error.h"
#include "train/device_batch.h"

namespace tandem {

Stepper::Stepper(Backend& backend, const Transformer& model, ModelState& weights, Adam& adam, float smoothing,
                 std::vector<BatchLayout> layouts)
    : backend_(backend),
      model_(model),
      weights_(weights),
      adam_(adam),
      smoothing_(smoothing),
      layouts_(std::move(layouts)),
      arena_([&backend](size_t bytes) { return backend.allocate(bytes); }),
      state_(backend.allocate(sizeof(StepState))),
      results_(backend.make_outbox(sizeof(StepResult))),
      recordings_(layouts_.size()) {
  if (!layouts_.empty()) {
    size_t bytes = 0;
    for (const BatchLayout& layout : layouts_) {
      bytes = std::max(bytes, layout.bytes());
    }
    feed_ = backend.make_feed(bytes);
  }
  set_updates(0);
}

void Stepper::set_updates(int64_t updates) {
  StepResult fresh;
  fresh.update.updates = static_cast<uint32_t>(updates);
  static_assert(sizeof fresh % 4 == 0);
  backend_.upload(make_view(results_->block(), DType::i32, 1, sizeof fresh / 4, state_.memory()), &fresh);
}

StepResult Stepper::take() {
  StepResult result;
  results_->take(&result);
  return result;
}

// ---- the ops of a step

void Stepper::begin() {
  backend_.fill_zero(make_view(&static_cast<StepResult*>(results_->block())->totals, DType::i32, 1,
                               sizeof(LossTotals) / 4, state_.memory()));
}

void Stepper::round(const Batch& batch, bool first) {
  Gradients gradients = weights_.gradients();
  gradients.accumulate = !first;
  model_.train(weights_.weights(), gradients, batch, smoothing_, &static_cast<StepResult*>(results_->block())->totals,
               arena_);
}

void Stepper::update(const StepState* state) {
  adam_.step({weights_.masters(), weights_.copy(), weights_.average(), weights_.gradients()}, state,
             &static_cast<StepResult*>(results_->block())->update);
}

// ---- giving them

void Stepper::give(const TrainStep& step, StepState state, bool recorded) {
  if (layouts_.empty()) {
    give_true_counts(step, state);
    results_->post();
    return;
  }
  require(!step.rounds.empty(), "a worker got no part of step {}", state.step);
  const bool whole = step.rounds.size() == 1;
  const auto* device_state = static_cast<const StepState*>(feed_->block());
  const auto run = [&](std::unique_ptr<Recording>& recording, const std::function<void()>& body) {
    if (!recorded) {
      body();
      return;
    }
    if (recording == nullptr) {
      recording = backend_.record(body);
    }
    recording->run();
  };
  if (!whole) {
    run(begin_, [this] { begin(); });
  }
  bool first = true;
  for (const HostBatch& batch : step.rounds) {
    const auto layout = std::find_if(layouts_.begin(), layouts_.end(),
                                     [&batch](const BatchLayout& candidate) { return candidate.holds(batch); });
    require(layout != layouts_.end(), "a round of {} + {} tokens and {} pairs is larger than the largest capacity",
            batch.source.tokens.size(), batch.target.tokens.size(), batch.pairs.size());
    state.first_source = batch.source.first;
    state.first_target = batch.target.first;
    layout->write(feed_->next(), batch, state);
    feed_->send();
    Recordings& own = recordings_[static_cast<size_t>(layout - layouts_.begin())];
    const Batch views = layout->batch(feed_->block(), state_.memory());
    run(whole   ? own.whole
        : first ? own.first
                : own.next,
        [this, whole, first, views, device_state] {
          arena_.reset();
          if (whole) {
            begin();
          }
          round(views, first);
          if (whole) {
            update(device_state);
          }
        });
    first = false;
  }
  if (!whole) {
    run(update_, [this, device_state] { update(device_state); });
  }
  results_->post();
}

void Stepper::give_true_counts(const TrainStep& step, StepState& state) {
  static_assert(sizeof state % 4 == 0);
  const View device_state = state_.view(DType::i32, 1, sizeof state / 4);
  backend_.upload(device_state, &state);
  begin();
  if (step.rounds.empty()) {
    backend_.fill_zero(weights_.gradients());
  }
  bool first = true;
  for (const HostBatch& batch : step.rounds) {
    state.first_source = batch.source.first;
    state.first_target = batch.target.first;
    backend_.upload(device_state, &state);
    arena_.reset();
    round(upload_batch(backend_, arena_, batch, static_cast<const StepState*>(state_.data())), first);
    first = false;
  }
  update(static_cast<const StepState*>(state_.data()));
}

size_t planned_arena_bytes(const Backend& backend, const ModelConfig& config, DType compute,
                           const BatchLayout& layout) {
  PlanningBackend planning(backend);
  const Transformer model(planning, config);
  const ModelState weights(planning, model.parameters(), compute, false);
  Arena arena([&planning](size_t bytes) { return planning.allocate(bytes); });
  arena.reserve(size_t{1} << 46);  // one chunk, so that the peak is the sum of what is taken
  LossTotals totals;
  StepState state;
  Batch batch = layout.batch(&state, Memory::device);
  model.train(weights.weights(), weights.gradients(), batch, 0, &totals, arena);
  return arena.peak_bytes();
}

}  // namespace tandem
