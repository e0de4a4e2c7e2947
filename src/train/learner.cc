#include "train/learner.h"

#include "backend/planning.h"
#include "core/human.h"

namespace tandem::train {

Learner::State::State(backend::Backend& backend, const TrainConfig& config, dist::Communicator& gradients,
                      bool whole_parameters)
    : model(backend, config.model),
      weights(backend, model.parameters(), backend::compute_type(config.precision, backend),
              config.optimizer.ema_decay > 0, shard_unit(gradients.size())),
      update(make_gradient_update(backend, model, weights, gradients, config,
                                  whole_parameters || optim::needs_whole_parameters(config.optimizer.name))),
      optimizer(optim::make_optimizer(
          config.optimizer.name, backend, update->own_parameters(),
          {config.optimizer.adam, config.optimizer.max_gradient_norm, config.optimizer.ema_decay})) {}

std::unique_ptr<Learner::State> Learner::make_state(backend::Backend& backend, const TrainConfig& config,
                                                    dist::Communicator& gradients, bool whole_parameters) {
  const auto free = static_cast<double>(backend.memory_sizes().free);
  try {
    return std::make_unique<State>(backend, config, gradients, whole_parameters);
  } catch (const backend::OutOfMemory&) {
    backend::PlanningBackend planning(backend);
    const State planned(planning, config, gradients, whole_parameters);
    fail(
        "the model does not fit: its {} parameters take {} with gradients and the optimizer's state, and {} are free; "
        "choose a smaller model (nvidia-smi shows what else uses memory)",
        grouped(planned.model.parameters().count()), human_bytes(static_cast<double>(planning.allocated())),
        human_bytes(free));
  }
}

Learner::Learner(backend::Backend& backend, const TrainConfig& config, const data::Corpus& corpus,
                 const LearnerRanks& ranks, const LearnerOptions& options)
    : backend_(backend),
      host_(ranks.host),
      seed_(config.seed),
      state_(make_state(backend, config, ranks.gradients, options.whole_parameters)),
      plan_(options.plan
                ? *options.plan
                : plan_memory(backend, compute(), corpus, config, ranks.gradients.size(), options.wanted, ranks.host)),
      batcher_(corpus, plan_.batch, ranks.gradients.rank(), ranks.gradients.size()),
      smoothing_(config.label_smoothing),
      arena_([&backend](size_t bytes) { return backend.allocate(bytes); }),
      work_(backend, config.model, plan_.layouts),
      results_(backend.make_outbox(sizeof(StepResult))) {
  set_updates(0);
  arena_.reserve(plan_.arena_bytes);
}

void Learner::begin(const std::function<void(const View& weights)>& change) {
  HostCopy masters(backend_, weights().masters(), false);
  initialize(masters.view(), model().parameters(), seed_);
  change(masters.view());
  masters.commit();
  for (const optim::Slot& slot : optimizer().slots()) {
    backend_.fill_zero(slot.view);
  }
  resume(0, false);
}

void Learner::resume(int64_t updates, bool with_average) {
  if (!weights().average().empty() && !with_average) {
    backend_.copy(weights().average(), weights().masters());
  }
  weights().refresh_copy();
  set_updates(updates);
}

HostTensors Learner::host_tensors(HostTensors::Purpose purpose) {
  return {backend_, weights(), optimizer(), update(), host_, purpose};
}

double Learner::checkpoint_bytes() const {
  const auto parameters = static_cast<double>(model().parameters().count());
  double numbers = weights().average().empty() ? parameters : 2 * parameters;
  for (const optim::Slot& slot : optimizer().slots()) {
    const auto size = static_cast<double>(slot.view.size());
    numbers += slot.extent == optim::Slot::Extent::parameters ? parameters
               : slot.extent == optim::Slot::Extent::own      ? size * host_.size()
                                                              : size;
  }
  return numbers * sizeof(float);
}

// ---- steps

StepInput Learner::input_of(const data::TrainStep& step, int64_t number, double learning_rate) const {
  return {.state = {.seed = seed_,
                    .step = static_cast<uint32_t>(number),
                    .loss_scale = 1.0F / static_cast<float>(step.target_tokens),
                    .learning_rate = static_cast<float>(learning_rate)}};
}

void Learner::give(const data::TrainStep& step, StepInput input, bool recorded) {
  static const std::vector<data::HostBatch> nothing{
      data::pack({}, {})};  // a rank without a sentence adds zeros to the sums
  const std::vector<data::HostBatch>& batches = step.micro_batches.empty() ? nothing : step.micro_batches;
  for (const data::HostBatch& batch : batches) {
    const bool first = &batch == &batches.front(), last = &batch == &batches.back();
    input.state.first_source = batch.source.first;
    input.state.first_target = batch.target.first;
    const int kind = (first ? 1 : 0) + (last ? 2 : 0);
    work_.give(batch, step, input, kind, recorded,
               [this, first, last](const BatchWork::Given& given) { give_ops(given, first, last); });
  }
  results_->post();
}

void Learner::give_ops(const BatchWork::Given& given, bool first, bool last) {
  static_assert(sizeof(StepSums) % sizeof(int32_t) == 0);
  auto* result = static_cast<StepResult*>(results_->block());
  arena_.reset();
  if (first) {
    backend_.stamp(&result->clock.begin);
    backend_.fill_zero(
        make_view(&result->sums, DType::i32, 1, sizeof(StepSums) / sizeof(int32_t), weights().masters().memory));
    update().begin(given.ids);
  }
  model::Gradients gradients = update().gradients(last);
  gradients.accumulate = !first;
  model().train(weights().weights(), gradients, given.batch, smoothing_, &result->sums.totals, arena_);
  if (last) {
    update().finish(*state_->optimizer, given.ids, given.input, result);
    backend_.stamp(&result->clock.end);
  }
}

StepResult Learner::take() {
  StepResult result;
  results_->take(&result);
  return result;
}

void Learner::set_updates(int64_t updates) {
  StepResult fresh;
  fresh.update.updates = static_cast<uint32_t>(updates);
  static_assert(sizeof fresh % sizeof(int32_t) == 0);
  backend_.upload(
      make_view(results_->block(), DType::i32, 1, sizeof fresh / sizeof(int32_t), weights().masters().memory), &fresh);
}

int64_t Learner::rows_of(const data::TrainStep& step) const {
  int64_t rows = 0;
  for (const data::HostBatch& batch : step.micro_batches) {
    rows += work_.rows_of(batch);
  }
  return rows;
}

}  // namespace tandem::train
