// The measurements of a preflight: what one rank has found out, and what all of them have.
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
  std::string address, interface;  // by which the others reach it; empty with one rank
  std::string device;              // what computes
  int gpus = 0;                    // of the host
  double clock_mhz = 0;            // of the GPU, right after it worked; 0 = not known
  double memory_free = 0, memory_total = 0;
  double product_flops = 0;  // a second, while all ranks computed
  std::string disk;          // the directory that the next was asked of
  double disk_free = 0;
  double sent = 0, received = 0;  // bytes a step, by plan
  double compute_speed = 1;       // beside constant sums, against computing alone
  std::vector<StepTimeline> steps{};
  std::vector<Link> links{};  // that it was the first rank of
};

struct Measurements {
  std::vector<RankMeasurements> ranks;
  std::vector<Link> links;  // of all ranks
  NetworkModel network = infinitely_fast();
  DType wire = DType::f32;  // of gradients
  double parameters = 0;
  double source_tokens = 0, target_tokens = 0;  // a step
  double epochs_a_step = 0;
  double checkpoint_bytes = 0, checkpoints = 0;  // each, and how many lie there at most
  double seconds = 0;                            // that all this took
};

// One rank's as text, and back. Fails where the text is not one of these.
std::string to_text(const RankMeasurements& measurements);
RankMeasurements parse_measurements(const std::string& text);

// Called by all ranks, with the config that training would have, made whole. The same on all ranks; about half a
// minute.
Measurements measure_all(dist::ProcessGroup& group, const train::TrainConfig& config, const data::Prepared& data);

}  // namespace tandem::preflight
