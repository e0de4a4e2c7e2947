#include "train/stepper.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/error.h"
#include "train/device_batch.h"
#include "train/planned_bytes.h"

namespace tandem {

namespace {

// The smallest of a few sizes that holds `rows`, so that a few recordings serve all steps.
int64_t rows_capacity(int64_t rows, int64_t vocabulary) {
  int64_t capacity = vocabulary;
  while (capacity / 2 >= std::max<int64_t>(rows, vocabulary / 8)) {
    capacity /= 2;
  }
  return capacity;
}

}  // namespace

Stepper::Stepper(Backend& backend, const Transformer& model, ModelState& weights, Adam& adam, float smoothing,
                 std::vector<BatchLayout> layouts, TeamUpdate* team)
    : backend_(backend),
      model_(model),
      weights_(weights),
      adam_(adam),
      smoothing_(smoothing),
      layouts_(std::move(layouts)),
      team_(team),
      arena_([&backend](size_t bytes) { return backend.allocate(bytes); }),
      state_(backend.allocate(sizeof(StepState))),
      results_(backend.make_outbox(sizeof(StepResult))) {
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

void Stepper::begin(const TeamRows& rows) {
  backend_.stamp(&result()->clock.begin);
  backend_.fill_zero(make_view(&result()->totals, DType::i32, 1, sizeof(LossTotals) / 4, state_.memory()));
  if (team_ != nullptr) {
    team_->begin(rows.source(), rows.target());
  }
}

void Stepper::round(const Batch& batch, bool first, bool last) {
  Gradients gradients = team_ == nullptr ? Gradients(weights_.gradients()) : team_->gradients(last);
  gradients.accumulate = !first;
  model_.train(weights_.weights(), gradients, batch, smoothing_, &result()->totals, arena_);
}

void Stepper::update(const TeamRows& rows, const StepState* state) {
  StepClock& clock = result()->clock;
  if (team_ == nullptr) {
    adam_.step({weights_.masters(), weights_.copy(), weights_.average(), weights_.gradients()}, state,
               &result()->update);
    backend_.stamp(&clock.end);
    return;
  }
  const auto number = [this](const double* place) {
    return make_view(const_cast<double*>(place), DType::f64, 1, 1, state_.memory());
  };
  backend_.copy(number(&result()->pause), number(&state->pause));
  static_assert(offsetof(StepResult, pause) == sizeof(LossTotals));
  const View totals = make_view(&result()->totals, DType::f64, 1, sizeof(LossTotals) / 8 + 1, state_.memory());
  const auto stamp = [this](uint64_t* time) {
    if (!team_->alone()) {
      backend_.stamp(time);
    }
  };
  stamp(&clock.joining);
  team_->join(totals);
  stamp(&clock.joined);
  team_->update(adam_, rows.source_ids, rows.target_ids, state, &result()->update);
  stamp(&clock.sharing);
  team_->share();
  backend_.stamp(&clock.end);
}

// ---- giving them

void Stepper::give(const TrainStep& step, StepState state, bool recorded) {
  if (layouts_.empty()) {
    give_true_counts(step, state);
  } else {
    give_fixed_shape(step, state, recorded);
  }
  results_->post();
}

// The first time is not recorded: libraries choose algorithms, take memory and make connections when they are first
// used.
void Stepper::run(Recordable& work, bool recorded, const std::function<void()>& body) {
  const bool warm = std::exchange(work.warm, true);
  if (!recorded || !warm) {
    body();
    return;
  }
  if (work.recording == nullptr) {
    work.recording = backend_.record(body);
  }
  work.recording->run();
}

std::vector<BatchLayout>::const_iterator Stepper::layout_of(const HostBatch& batch) const {
  const auto layout = std::find_if(layouts_.begin(), layouts_.end(),
                                   [&batch](const BatchLayout& candidate) { return candidate.holds(batch); });
  require(layout != layouts_.end(), "a round of {} + {} tokens and {} pairs is larger than the largest capacity",
          batch.source.tokens.size(), batch.target.tokens.size(), batch.pairs.size());
  return layout;
}

int64_t Stepper::rows_of(const TrainStep& step) const {
  int64_t rows = 0;
  for (const HostBatch& batch : step.rounds) {
    rows += layouts_.empty() ? static_cast<int64_t>(batch.source.tokens.size() + batch.target.tokens.size())
                             : layout_of(batch)->capacity().source + layout_of(batch)->capacity().target;
  }
  return rows;
}

void Stepper::give_fixed_shape(const TrainStep& step, StepState& state, bool recorded) {
  std::vector<const HostBatch*> rounds;
  for (const HostBatch& batch : step.rounds) {
    rounds.push_back(&batch);
  }
  const HostBatch nothing = rounds.empty() ? pack({}, {}) : HostBatch{};
  if (rounds.empty()) {
    rounds.push_back(&nothing);  // this rank's part of the sums is zero
  }
  const auto* device_state = static_cast<const StepState*>(feed_->block());
  const auto& config = model_.config();
  const int64_t source_rows = rows_capacity(static_cast<int64_t>(step.source_ids.size()), config.source_vocabulary);
  const int64_t target_rows = rows_capacity(static_cast<int64_t>(step.target_ids.size()), config.target_vocabulary);
  for (size_t i = 0; i < rounds.size(); ++i) {
    const HostBatch& batch = *rounds[i];
    const auto layout = layout_of(batch);
    state.first_source = batch.source.first;
    state.first_target = batch.target.first;
    const std::span<std::byte> block = feed_->next();
    layout->write(block, batch, state);
    TeamRows rows;
    if (team_ != nullptr) {
      layout->write_step_ids(block, step);
      rows.source_ids = layout->step_ids(feed_->block(), state_.memory(), Side::source, source_rows);
      rows.target_ids = layout->step_ids(feed_->block(), state_.memory(), Side::target, target_rows);
    }
    feed_->send();
    const bool first = i == 0, last = i + 1 == rounds.size();
    const bool by_rows = team_ != nullptr;
    Recordings& own = recordings_[{layout - layouts_.begin(), by_rows ? source_rows : 0, by_rows ? target_rows : 0}];
    const Batch views = layout->batch(feed_->block(), state_.memory());
    run(first && last ? own.whole
        : first       ? own.first
        : last        ? own.last
                      : own.middle,
        recorded, [this, first, last, rows, views, device_state] {
          arena_.reset();
          if (first) {
            begin(rows);
          }
          round(views, first, last);
          if (last) {
            update(rows, device_state);
          }
        });
  }
}

void Stepper::give_true_counts(const TrainStep& step, StepState& state) {
  static_assert(sizeof state % 4 == 0);
  const View device_state = state_.view(DType::i32, 1, sizeof state / 4);
  const auto* state_place = static_cast<const StepState*>(state_.data());
  backend_.upload(device_state, &state);
  TeamRows rows;
  Buffer ids[2];
  if (team_ != nullptr) {
    const auto upload = [this](Buffer& memory, const std::vector<int32_t>& values) {
      memory = backend_.allocate(values.size() * sizeof(int32_t));
      const View view = memory.view(DType::i32, 1, static_cast<int64_t>(values.size()));
      backend_.upload(view, values.data());
      return view;
    };
    rows.source_ids = upload(ids[0], step.source_ids);
    rows.target_ids = upload(ids[1], step.target_ids);
  }
  begin(rows);
  for (const HostBatch& batch : step.rounds) {
    state.first_source = batch.source.first;
    state.first_target = batch.target.first;
    backend_.upload(device_state, &state);
    arena_.reset();
    round(upload_batch(backend_, arena_, batch, state_place), &batch == &step.rounds.front(),
          &batch == &step.rounds.back());
  }
  if (step.rounds.empty()) {
    require(team_ != nullptr, "step {} has no sentences", state.step);
    team_->no_part();
  }
  update(rows, state_place);
}

Traffic Stepper::planned_traffic(const TrainStep& step) const {
  if (team_ == nullptr) {
    return {};
  }
  const auto rows = [&](const std::vector<int32_t>& ids, int64_t vocabulary) {
    const auto count = static_cast<int64_t>(ids.size());
    return layouts_.empty() ? count : rows_capacity(count, vocabulary);
  };
  return team_->planned_traffic(rows(step.source_ids, model_.config().source_vocabulary),
                                rows(step.target_ids, model_.config().target_vocabulary));
}

size_t planned_arena_bytes(const Backend& backend, const ModelConfig& config, DType compute,
                           const BatchLayout& layout) {
  return planned_bytes(
      backend, config, compute, layout,
      [](const Transformer& model, const ModelState& weights, const Batch& batch, LossTotals* totals, Arena& arena) {
        model.train(weights.weights(), weights.gradients(), batch, 0, totals, arena);
      });
}

}  // namespace tandem
