// All that learns, put together in one place: model, weights, optimizer, update over the ranks, memory plan, batches
// and steps. What is trained, tried in preflight, benchmarked and tuned is the same object.
//
// Steps are given to the backend, and their results come back in order. On a device that replays recorded work, the
// next steps are given while the first are still under way; on any other a step is done when give() returns.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "data/batcher.h"
#include "train/host_tensors.h"
#include "train/memory_plan.h"

namespace tandem::train {

// The ranks that train one model together.
struct LearnerRanks {
  dist::Communicator& host;       // for host memory: what the ranks agree on
  dist::Communicator& gradients;  // works where the backend's memory is; its ranks share a step
};

struct LearnerOptions {
  data::MicroBatchCapacity wanted = {};  // of a micro-batch, if it fits as well: the run's so far
  std::optional<MemoryPlan> plan = {};   // instead of the one that the free memory gives
  bool whole_parameters = false;  // shards end at the ends of parameters even if the optimizer does not ask for it
};

class Learner {
 public:
  // Takes all the memory that steps need. The config is complete (complete_config()). What is given by reference must
  // outlive the learner. If the model does not fit the device, fails with what it takes and what is free.
  Learner(backend::Backend& backend, const TrainConfig& config, const data::Corpus& corpus, const LearnerRanks& ranks,
          const LearnerOptions& options = {});

  // Fresh weights, and an optimizer that has seen nothing. `change` may replace the weights, flat f32 in host memory.
  void begin(const std::function<void(const View& weights)>& change = [](const View&) {});
  // After the host tensors were written: the rest of the state follows from them. updates: done before.
  void resume(int64_t updates, bool with_average);
  HostTensors host_tensors(HostCopy::Purpose purpose);

  // ---- steps
  // What the ops of a step read of it; number: of the step, from 0.
  StepInput input_of(const data::TrainStep& step, int64_t number, double learning_rate) const;
  // The first tokens of `input.state` are filled in here. `recorded` false: op by op, which gives the same bits.
  void give(const data::TrainStep& step, StepInput input, bool recorded = true);
  size_t under_way() const { return results_->waiting(); }
  // So many steps should be under way that the device never waits for the host.
  size_t usual_under_way() const { return work_.replays() ? 3 : 0; }
  // So many steps are slower than those after them.
  int warm_up() const { return work_.replays() ? 4 : 2; }
  StepResult take();  // of the oldest step given; waits for it
  // Rows of both sides that this rank works through for a step, those without a token counted.
  int64_t rows_of(const data::TrainStep& step) const;
  // Bytes that this rank sends and receives for a step.
  dist::Traffic planned_traffic(const data::TrainStep& step) const {
    return state_->update->planned_traffic(work_.ids_of(step));
  }

  // ---- what it is made of
  const model::Transformer& model() const { return state_->model; }
  model::Transformer& model() { return state_->model; }
  ModelState& weights() { return state_->weights; }
  const ModelState& weights() const { return state_->weights; }
  const optim::Optimizer& optimizer() const { return *state_->optimizer; }
  GradientUpdate& update() { return *state_->update; }
  const MemoryPlan& plan() const { return plan_; }
  data::Batcher& batcher() { return batcher_; }
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
  void set_updates(int64_t updates);                                    // how many were done before
  void give_ops(const BatchWork::Given& given, bool first, bool last);  // of a step's micro-batch

  backend::Backend& backend_;
  dist::Communicator& host_;
  const uint64_t seed_;
  std::unique_ptr<State> state_;
  MemoryPlan plan_;
  data::Batcher batcher_;
  const float smoothing_;
  Arena arena_;
  BatchWork work_;
  std::unique_ptr<backend::Outbox> results_;
};

}  // namespace tandem::train
