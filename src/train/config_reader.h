// One layer of a config (a file, or the overrides of a command line) laid over what is there already.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/config.h"

namespace tandem::train {

// Where each key that was set comes from ("base.toml:12"), and every error met so far, in order.
struct ConfigReport {
  std::string file;
  std::map<std::string, std::string> places;
  std::vector<std::string> errors;

  std::string place_of(const std::string& key) const {
    const auto found = places.find(key);
    return found == places.end() ? file : found->second;
  }
};

void read_toml(const std::string& toml, TrainConfig& config, ConfigReport& report);
void read_overrides(const std::vector<std::string>& overrides, TrainConfig& config, ConfigReport& report);

// Impossible values and combinations of the whole config.
void check_config(TrainConfig& config, ConfigReport& report);

}  // namespace tandem::train
