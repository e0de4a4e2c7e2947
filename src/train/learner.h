// All that learns, put together in one place: model, weights, optimizer, update over the ranks, memory plan, batches
// and steps. What is trained, tried in preflight, benchmarked and tuned is the same object.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "data/batcher.h"
#include "train/host_tensors.h"
#include "train/memory_plan.h"
#include "train/stepper.h"

namespace tandem::train {

// The ranks that train one model together.
struct LearnerRanks {
  dist::Communicator& host;  // for host memory: what the ranks agree on
  dist::Communicator&
      gradients;  // works where the backend's memory is; how many share a step, and which of them this is
};

struct LearnerOptions {
  data::MicroBatchCapacity wanted = {};  // of a micro-batch, if it fits as well: the run's so far
  std::optional<MemoryPlan> plan = {};   // instead of the one that the free memory gives
  bool whole_parameters = false;  // shards end at the ends of parameters even if the optimizer does not ask for it
};

class Learner {
 public:
  // Takes all the memory that steps need. The config is complete (setup.h). What is given by reference must outlive the
  // learner. If the model does not fit the device, fails with what it takes and what is free.
  Learner(backend::Backend& backend, const TrainConfig& config, const data::Corpus& corpus, const LearnerRanks& ranks,
          const LearnerOptions& options = {});

  // Fresh weights, and an optimizer that has seen nothing. `change` may replace the weights, flat f32 in host memory.
  void begin(const std::function<void(const View& weights)>& change = [](const View&) {});
  // After the host tensors were written: the rest of the state follows from them. updates: done before.
  void resume(int64_t updates, bool with_average);
  HostTensors host_tensors(HostCopy::Purpose purpose);

  // What the ops of a step read of it; number: of the step, from 0.
  StepInput input_of(const data::TrainStep& step, int64_t number, double learning_rate) const;

  const model::Transformer& model() const { return state_->model; }
  model::Transformer& model() { return state_->model; }
  ModelState& weights() { return state_->weights; }
  const ModelState& weights() const { return state_->weights; }
  const optim::Optimizer& optimizer() const { return *state_->optimizer; }
  GradientUpdate& update() { return *state_->update; }
  const MemoryPlan& plan() const { return plan_; }
  data::Batcher& batcher() { return batcher_; }
  Stepper& stepper() { return stepper_; }
  DType compute() const { return weights().weights().compute.dtype; }
  // How much one micro-batch has room for; 0 if as much as it needs.
  data::MicroBatchCapacity fixed_micro_batch() const {
    return plan_.layouts.empty() ? data::MicroBatchCapacity{} : plan_.batch.capacity;
  }
  double checkpoint_bytes() const;  // of weights, their average and the optimizer's state

 private:
  struct State {
    State(backend::Backend& backend, const TrainConfig& config, dist::Communicator& gradients, bool whole_parameters);

    model::Transformer model;
    ModelState weights;
    std::unique_ptr<GradientUpdate> update;
    std::unique_ptr<optim::Optimizer> optimizer;
  };
  static std::unique_ptr<State> make_state(backend::Backend& backend, const TrainConfig& config,
                                           dist::Communicator& gradients, bool whole_parameters);

  backend::Backend& backend_;
  dist::Communicator& host_;
  const uint64_t seed_;
  std::unique_ptr<State> state_;
  MemoryPlan plan_;
  data::Batcher batcher_;
  Stepper stepper_;
};

}  // namespace tandem::train
