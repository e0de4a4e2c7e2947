// Everything that learns, in one place: model, weights, optimizer, update over the ranks, memory plan, batches and
// steps. Training, preflight, benchmarks and tuning all use this class.
//
// Steps are given to the backend, and their results come back in order. On a device that replays, further steps are
// given while the first are still under way; on any other a step is done when give() returns.
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
  dist::Communicator& host;       // for host memory: used for agreements between the ranks
  dist::Communicator& gradients;  // works where the backend's memory is; its ranks share a step
};

struct LearnerOptions {
  data::MicroBatchCapacity wanted = {};  // capacity of the run's micro-batches so far; kept if it fits
  std::optional<MemoryPlan> plan = {};   // used instead of a plan from the free memory
  bool whole_parameters = false;         // shards end at the ends of parameters even if the optimizer does not need it
};

class Learner {
 public:
  // Allocates all memory for steps. The config must be complete (complete_config()). Arguments given by reference must
  // outlive the learner. If the model does not fit, the error gives its size and the free memory.
  Learner(backend::Backend& backend, const TrainConfig& config, const data::Corpus& corpus, const LearnerRanks& ranks,
          const LearnerOptions& options = {});

  // Fresh weights and optimizer state. `change` may replace the weights, flat f32 in host memory.
  void begin(const std::function<void(const View& weights)>& change = [](const View&) {});
  // Call after writing the host tensors: derives the rest of the state from them. updates: number of updates so far.
  void resume(int64_t updates, bool with_average);
  HostTensors host_tensors(HostTensors::Purpose purpose);

  // ---- steps
  // Input of a step's ops; number: of the step, from 0.
  StepInput input_of(const data::TrainStep& step, int64_t number, double learning_rate) const;
  // Fills in the first tokens of `input.state`. If not `recorded`, ops are given one by one, with the same bits.
  void give(const data::TrainStep& step, StepInput input, bool recorded = true);
  size_t under_way() const { return results_->waiting(); }
  // Number of steps under way with which the device never waits for the host.
  size_t usual_under_way() const { return work_.replays() ? 3 : 0; }
  // Number of first steps that are slower than those after them.
  int warm_up() const { return work_.replays() ? 4 : 2; }
  StepResult take();  // result of the oldest step given; waits for it
  // Rows of both sides that this rank computes for a step, including rows without a token.
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
  // Capacity of a micro-batch; 0 if micro-batches have their true size.
  data::MicroBatchCapacity fixed_micro_batch() const {
    return plan_.layouts.empty() ? data::MicroBatchCapacity{} : plan_.batch.capacity;
  }
  double checkpoint_bytes() const;  // bytes of weights, their average and the optimizer's state

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
  void set_updates(int64_t updates);                                    // number of updates so far
  void give_ops(const BatchWork::Given& given, bool first, bool last);  // ops of one micro-batch of a step

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
