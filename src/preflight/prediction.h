// Predicts a run from the measurements: the step, the run's duration and cost, the bottleneck, and what would help.
#pragma once

#include <string>
#include <vector>

#include "preflight/forecast.h"
#include "preflight/measure.h"
#include "train/config.h"

namespace tandem::preflight {

struct WhatIf {
  std::string name;
  double step = 0;               // seconds
  double tokens_per_second = 0;  // target tokens
};

struct Prediction {
  Forecast step;
  double tokens_per_second = 0;  // target tokens
  double steps = 0;              // until the config's first limit; 0 = not known
  double seconds = 0;            // seconds of these steps
  double cost = kNotMeasured;
  std::string bottleneck;  // "network", "compute" or "slow_rank"
  std::string sentence;    // the bottleneck in words
  std::vector<WhatIf> what_if;
  std::vector<std::string> warnings;  // what a user should look at
  std::string problem;                // what will make the run fail; empty = nothing known
};

// `price`: cost of an hour of all hosts together; NaN = not given.
Prediction predict(const Measurements& measurements, const train::TrainConfig& config, double price);

// "this link moves 12.0 MB/s (96.0 Mbit/s): it is a 100 Mbit port"
std::string link_sentence(double bytes_per_second);

std::string host_of(const Measurements& measurements, int node);

// The output of a preflight.
std::string preflight_text(const Measurements& measurements, const Prediction& prediction);
std::string preflight_json(const Measurements& measurements, const Prediction& prediction);  // docs/formats.md

}  // namespace tandem::preflight
