// Measures the training step by itself: real sentence lengths, the trainer's own batches and recorded steps.
#pragma once

#include <string>
#include <vector>

#include "backend/profiled.h"
#include "data/corpus.h"
#include "train/config.h"

namespace tandem::train {

// The machine's ceilings, measured beside the step.
struct Ceilings {
  double product_flops = 0;  // a second, of a large bf16 (or f32) matrix product on random data
  double copy_bytes = 0;     // a second, read and written, of a large copy
};

struct StepBench {
  std::string device;
  int64_t parameters = 0;
  double seconds = 0;        // a step, over all timed steps
  double source_tokens = 0;  // a step, true ones
  double target_tokens = 0;
  double micro_batches = 0;
  double flops = 0;       // a step, on true tokens
  double dead_share = 0;  // share of the capacity that holds no token
  int64_t too_long = 0;   // pairs that no step has: a side exceeds `longest` tokens
  int64_t longest = 0;    //
  size_t memory = 0;      // bytes taken on the device, without the driver's own
  Ceilings ceilings;
  std::vector<backend::OpProfile> profile;  // of one step, op by op; empty where it was not asked for
  std::vector<std::string> lengths;         // "source target" of every pair of the timed steps, in order
  std::string algorithms;                   // in use
};

struct StepBenchOptions {
  int64_t warm_up = 5;
  int64_t steps = 50;
  bool tune = false;  // choose algorithms first
  int ranks = 1;      // the step of one of so many
  bool profile = true;
  std::string algorithms;  // a table made by tuning; empty = none
};

StepBench measure_step(const data::Corpus& corpus, const TrainConfig& config, const StepBenchOptions& options);

}  // namespace tandem::train
