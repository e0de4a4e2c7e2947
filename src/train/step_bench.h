// Measures the training step alone: real sentence lengths, the trainer's own batches and recorded steps.
#pragma once

#include <string>
#include <vector>

#include "backend/profiled.h"
#include "data/corpus.h"
#include "train/config.h"

namespace tandem::train {

// The machine's limits, measured on the same backend.
struct Ceilings {
  double product_flops = 0;  // FLOP/s of a large bf16 (or f32) matrix product of random numbers
  double copy_bytes = 0;     // bytes per second, read plus written, of a large copy
};

struct StepBench {
  std::string device;
  int64_t parameters = 0;
  double seconds = 0;        // per step, over all timed steps
  double source_tokens = 0;  // true tokens per step
  double target_tokens = 0;
  double micro_batches = 0;
  double flops = 0;       // per step, on true tokens
  double dead_share = 0;  // share of the capacity that holds no token
  int64_t too_long = 0;   // pairs left out because a side exceeds `longest` tokens
  int64_t longest = 0;
  size_t memory = 0;  // bytes taken on the device, without the driver's own
  Ceilings ceilings;
  std::vector<backend::OpProfile> profile;  // one step, op by op; empty if not wanted
  std::vector<std::string> lengths;         // "source target" token counts of every pair of the timed steps, in order
  std::string algorithms;                   // the table in use
};

struct StepBenchOptions {
  int64_t warm_up = 5;
  int64_t steps = 50;
  bool tune = false;  // choose algorithms first
  int ranks = 1;      // number of ranks that share a step, of which one is measured
  bool profile = true;
  std::string algorithms;  // table made by tuning; empty = none
};

StepBench measure_step(const data::Corpus& corpus, const TrainConfig& config, const StepBenchOptions& options);

}  // namespace tandem::train
