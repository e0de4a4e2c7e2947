// The training run: from a config to a trained model in a run directory.
//
// One optimizer step is the next pairs of the shuffled stream (data/batcher.h), split into one or more micro-batches.
// A run that was stopped, killed or moved resumes from its latest checkpoint as if nothing had happened, bit for bit.
#pragma once

#include <string>

#include "train/config.h"

namespace tandem::train {

struct TrainOutcome {
  std::string reason;  // why it ended, in one line
  int64_t step = 0;
  int signal = 0;  // the signal that asked to stop, or 0
};

// Trains until a limit of config.stop is reached or a signal asks to stop; the state is saved either way. Resumes if
// the run directory has a checkpoint, unless `start_over`, which removes the former run. Fails if that checkpoint has
// other data or another model. check_share: share of the steps, chosen at random, whose ops are also computed on the
// CPU and compared; the first difference ends the run.
TrainOutcome train_model(TrainConfig config, bool start_over, double check_share = 0);

}  // namespace tandem::train
