// A training run as seen by one of its ranks: the other ranks, which of them share a disk, what they must agree on, and
// the engine that adds up their gradients.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "data/prepared.h"
#include "dist/process_group.h"
#include "store/run_directory.h"
#include "train/config.h"

namespace tandem::train {

class GroupRun {
 public:
  // Opens the run directory and meets the other ranks that the environment names. If several ranks are on this host,
  // config's device and threads become this rank's own.
  GroupRun(TrainConfig& config, const data::Prepared& data, bool start_over);

  dist::ProcessGroup& group() { return *group_; }
  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  bool first() const { return rank() == 0; }  // the rank that writes to the user
  std::string interface() const {             // network interface between the ranks; empty if there is one rank
    return size() == 1 ? "" : group_->ranks()[static_cast<size_t>(rank())].interface;
  }
  store::RunDirectory& directory() { return *directory_; }
  const store::RunDirectory& directory() const { return *directory_; }
  // The settings that all ranks share, without this rank's own device and threads; checkpoints store them.
  const std::string& settings() const { return settings_; }
  // Whether this rank writes checkpoints: rank 0, and the first rank of each host with a disk of its own, so that
  // losing a host loses nothing.
  bool keeps_checkpoints() const { return keeps_checkpoints_; }

  // Sends the value of rank `root` to all ranks.
  double broadcast(double value, int root = 0);
  std::string broadcast(const std::string& text, int root = 0) { return group_->broadcast(text, root); }
  double largest(double value) { return dist::largest(group_->communicator(), value); }
  // Every rank's text, by rank.
  std::vector<std::string> gather(const std::string& text) { return group_->gather(text); }
  void barrier() { group_->communicator().barrier(); }

  // Whether the run starts over. What a former run left stays until clear(), which all ranks call.
  bool starts_over() const { return starts_over_; }
  void clear();

  // Ends the process group in order; from then on this rank's silence is not taken for its death.
  void leave() { group_->leave(); }

 private:
  int first_node_on_disk(const std::filesystem::path& run);

  std::string settings_;
  std::unique_ptr<dist::ProcessGroup> group_;
  std::optional<store::RunDirectory> directory_;
  bool starts_over_ = false;
  bool keeps_checkpoints_ = true;
};

// Ranks of one host share its GPUs or its cores: sets config's device and threads to this rank's own.
void take_own_part(TrainConfig& config, const dist::World& world);

// Number of workers on this machine if a user starts one process: one per usable GPU if the config leaves the device
// open, else one.
int workers_of_machine(const TrainConfig& config);

// The properties on which this rank and the others must agree before they work together.
dist::Identity group_identity(const TrainConfig& config, const data::Prepared& data, const std::string& checkpoint);

dist::ProcessGroupOptions group_options(const DistConfig& config);

// Communicator for gradients in the backend's memory. Null if the process group's own communicator does that.
std::unique_ptr<dist::Communicator> make_gradient_communicator(dist::ProcessGroup& group, backend::Backend& backend,
                                                               const DistConfig& config);

}  // namespace tandem::train
