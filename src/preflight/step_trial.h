// The config's own training steps on this rank's share of the batch, with everything but the network.
#pragma once

#include <memory>

#include "data/prefetch.h"
#include "data/prepared.h"
#include "dist/process_group.h"
#include "preflight/timeline.h"
#include "preflight/timing_communicator.h"
#include "train/learner.h"

namespace tandem::preflight {

class StepTrial {
 public:
  // All must outlive this. config as train's would be, made whole.
  StepTrial(dist::ProcessGroup& group, backend::Backend& backend, const data::Prepared& data,
            const train::TrainConfig& config);

  StepTimeline run_step();

  dist::Communicator& sums() { return communicator_; }  // that gradients will use
  int64_t parameters() const { return learner_.model().parameters().count(); }
  int64_t usual_message() const;  // elements
  DType wire() const { return train::wire_type(config_.dist, backend_, compute()); }
  DType compute() const { return learner_.compute(); }
  double checkpoint_bytes() const { return learner_.checkpoint_bytes(); }

  // Of the steps so far.
  dist::Traffic planned_traffic() const { return traffic_; }  // a step, of this rank
  double source_tokens() const { return source_tokens_ / steps_; }
  double target_tokens() const { return target_tokens_ / steps_; }
  double epochs_a_step() const { return epochs_ / steps_; }

 private:
  const train::TrainConfig& config_;
  backend::Backend& backend_;
  std::unique_ptr<dist::Communicator> own_communicator_;
  dist::Communicator& communicator_;
  TimingCommunicator timing_;
  train::Learner learner_;
  data::Prefetcher batches_;
  dist::Traffic traffic_;
  double steps_ = 0, source_tokens_ = 0, target_tokens_ = 0, epochs_ = 0;
};

}  // namespace tandem::preflight
