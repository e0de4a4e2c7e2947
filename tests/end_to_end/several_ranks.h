// Several workers that train one model, started by `tandem launch`.
#pragma once

#include <cmath>

#include "dist/hosts.h"
#include "end_to_end/program.h"

namespace tandem::testing {

// hosts as in --hosts; options: more of the launcher's; command: what train_arguments() gives.
inline std::vector<std::string> launch_arguments(const std::string& hosts, const std::vector<std::string>& command,
                                                 const std::vector<std::string>& options = {}) {
  std::vector<std::string> all{"launch", "--hosts", hosts};
  all.insert(all.end(), options.begin(), options.end());
  all.emplace_back("--");
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

// Weights and optimizer of the latest checkpoint, bit for bit.
inline std::string saved_bits(const std::filesystem::path& run) {
  const std::string bits =
      read_text(run / "latest/model.safetensors") + read_text(run / "latest/optimizer.safetensors");
  EXPECT_GT(bits.size(), 1000U) << run;
  return bits;
}

// The largest relative difference of two runs' losses, over the steps from `first` to `last`; NaN where one is missing.
inline double loss_difference(const std::filesystem::path& one, const std::filesystem::path& other, int first,
                              int last) {
  const auto a = train_records(one, "loss");
  const auto b = train_records(other, "loss");
  double largest = 0;
  for (int step = first; step <= last; ++step) {
    if (a.count(step) == 0 || b.count(step) == 0 || !(std::abs(b.at(step) / a.at(step)) < 2)) {
      ADD_FAILURE() << "step " << step << " of " << one << " or " << other << " has no loss";
      return std::nan("");
    }
    largest = std::max(largest, std::abs(b.at(step) / a.at(step) - 1));
  }
  return largest;
}

// Hosts without a shared disk: `shared` is a directory of each host's own.
class SeparateDisks {
 public:
  SeparateDisks(const TemporaryDirectory& directory, const std::string& shared, int count, const std::string& rate = "")
      : hosts_(count, rate), disks_(directory.at("disk-")), script_(directory.at("reach")) {
    std::filesystem::create_directory(directory / shared);
    const std::string own = disks_ + "$host";
    write_text(script_, "#!/bin/sh\nhost=$1\nshift\nexec " + hosts_.agent() + " $host \"mkdir -p " + own +
                            " && mount --bind " + own + " " + directory.at(shared) + " && $*\"\n");
    std::filesystem::permissions(script_, std::filesystem::perms::owner_all);
  }

  const Hosts& hosts() const { return hosts_; }
  const std::string& agent() const { return script_; }
  std::filesystem::path disk(const std::string& host) const { return disks_ + host; }

 private:
  const Hosts hosts_;
  const std::string disks_, script_;
};

}  // namespace tandem::testing
