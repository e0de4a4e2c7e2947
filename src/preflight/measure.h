// The measurements of a preflight: those of one rank, and those of all.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "data/prepared.h"
#include "dist/process_group.h"
#include "preflight/forecast.h"
#include "preflight/network.h"
#include "train/config.h"

namespace tandem::preflight {

inline constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

struct RankMeasurements {
  int rank = 0;
  int node = 0;
  std::string host;
  std::string address, interface;  // how the others reach it; empty with one rank
  std::string device;              // what computes
  int gpus = 0;                    // GPUs of the host
  double clock_mhz = 0;            // clock of the GPU, right after it worked; 0 = not known
  double memory_free = 0, memory_total = 0;
  double product_flops = 0;  // FLOP/s of matrix products, while all ranks computed
  std::string disk;          // directory whose free bytes come next
  double disk_free = 0;
  double sent = 0, received = 0;  // planned bytes per step
  double compute_speed = 1;       // speed of computing beside constant sums, over that of computing alone
  std::vector<StepTimeline> steps{};
  std::vector<Link> links{};  // links of which it was the first rank
};

struct Measurements {
  std::vector<RankMeasurements> ranks;
  std::vector<Link> links;  // links of all ranks
  NetworkModel network = infinitely_fast();
  DType wire = DType::f32;  // type in which gradients are sent
  double parameters = 0;
  double source_tokens = 0, target_tokens = 0;  // tokens of a step
  double epochs_a_step = 0;
  double checkpoint_bytes = 0, checkpoints = 0;  // bytes of one, and how many are kept at most
  double seconds = 0;                            // duration of the measurements
};

// A rank's measurements as text, and back. Fails if the text is something else.
std::string to_text(const RankMeasurements& measurements);
RankMeasurements parse_measurements(const std::string& text);

// Called by all ranks with the complete config of the training. Takes about half a minute; the result is the same on
// all ranks.
Measurements measure_all(dist::ProcessGroup& group, const train::TrainConfig& config, const data::Prepared& data);

}  // namespace tandem::preflight
