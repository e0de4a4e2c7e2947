#include "train/learner.h"

#include "backend/forwarding.h"
#include "backend/planning.h"
#include "core/human.h"
#include "train/setup.h"

namespace tandem::train {

namespace {

// Adds up the bytes that are asked for.
class CountingBackend final : public backend::ForwardingBackend {
 public:
  using backend::ForwardingBackend::ForwardingBackend;
  Buffer allocate(size_t bytes) override {
    bytes_ += bytes;
    return backend::ForwardingBackend::allocate(bytes);
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

}  // namespace

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
    CountingBackend counting(planning);
    const State planned(counting, config, gradients, whole_parameters);
    fail(
        "the model does not fit: its {} parameters take {} with gradients and the optimizer's state, and {} are free; "
        "choose a smaller model (nvidia-smi shows who else has memory)",
        grouped(planned.model.parameters().count()), human_bytes(static_cast<double>(counting.bytes())),
        human_bytes(free));
  }
}

Learner::Learner(backend::Backend& backend, const TrainConfig& config, const data::Corpus& corpus,
                 const LearnerRanks& ranks, const LearnerOptions& options)
    : backend_(backend),
      host_(ranks.host),
      seed_(config.seed),
      state_(make_state(backend, config, ranks.gradients, options.whole_parameters)),
      plan_(options.plan ? *options.plan
                         : plan_memory_together(backend, compute(), corpus, config, ranks.gradients.size(),
                                                options.wanted, ranks.host)),
      batcher_(corpus, plan_.batch, ranks.gradients.rank(), ranks.gradients.size()),
      stepper_(backend, state_->model, state_->weights, *state_->optimizer, *state_->update, config.label_smoothing,
               plan_.layouts) {
  stepper_.reserve(plan_.arena_bytes);
}

void Learner::begin(const std::function<void(const View& weights)>& change) {
  HostCopy masters(backend_, weights().masters(), HostCopy::write);
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
  stepper_.set_updates(updates);
}

HostTensors Learner::host_tensors(HostCopy::Purpose purpose) {
  return {backend_, weights(), optimizer(), update(), host_, purpose};
}

StepInput Learner::input_of(const data::TrainStep& step, int64_t number, double learning_rate) const {
  return {.state = {.seed = seed_,
                    .step = static_cast<uint32_t>(number),
                    .loss_scale = 1.0F / static_cast<float>(step.target_tokens),
                    .learning_rate = static_cast<float>(learning_rate)}};
}

double Learner::checkpoint_bytes() const {
  const auto parameters = static_cast<double>(model().parameters().count());
  double numbers = weights().average().empty() ? parameters : 2 * parameters;
  for (const optim::Slot& slot : optimizer().slots()) {
    numbers += slot.extent == optim::Slot::Extent::parameters ? parameters : static_cast<double>(slot.view.size());
  }
  return numbers * sizeof(float);
}

}  // namespace tandem::train
