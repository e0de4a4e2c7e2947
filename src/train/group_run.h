// A training run as one of its ranks sees it: the other ranks, which of them share a disk, what they must agree on, and
// which engine carries their gradients.
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
  // Opens the run directory and meets the other ranks that the environment names. Where the process group has several
  // ranks on this host, config's device and threads become this rank's own.
  GroupRun(TrainConfig& config, const data::Prepared& data, bool start_over);

  dist::ProcessGroup& group() { return *group_; }
  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  bool first() const { return rank() == 0; }  // of all: it speaks to the user
  std::string interface() const {             // that the ranks talk over; empty where there is one rank
    return size() == 1 ? "" : group_->ranks()[static_cast<size_t>(rank())].interface;
  }
  store::RunDirectory& directory() { return *directory_; }
  const store::RunDirectory& directory() const { return *directory_; }
  // The settings as all ranks have them, without what is this rank's own: what checkpoints hold.
  const std::string& settings() const { return settings_; }
  // Whether this rank writes checkpoints: the first of all, and the first of each host that has a disk of its own, so
  // that losing a host loses nothing.
  bool keeps_checkpoints() const { return keeps_checkpoints_; }

  // What rank `root` holds, on all ranks.
  double broadcast(double value, int root = 0);
  std::string broadcast(const std::string& text, int root = 0) { return group_->broadcast(text, root); }
  double largest(double value) { return dist::largest(group_->communicator(), value); }
  // Every rank's text, in the order of the ranks.
  std::vector<std::string> gather(const std::string& text) { return group_->gather(text); }
  void barrier() { group_->communicator().barrier(); }

  // Asked to forget what a former run left; it is there until clear(), which all ranks call.
  bool starts_over() const { return starts_over_; }
  void clear();

  // The end: nobody takes this rank's silence for a death any more.
  void leave() { group_->leave(); }

 private:
  int first_node_on_disk(const std::filesystem::path& run);

  std::string settings_;
  std::unique_ptr<dist::ProcessGroup> group_;
  std::optional<store::RunDirectory> directory_;
  bool starts_over_ = false;
  bool keeps_checkpoints_ = true;
};

// Ranks of one host share its GPUs, or its cores: config's device and threads become this rank's own.
void take_own_part(TrainConfig& config, const dist::World& world);

// How many workers this machine gets if a user starts one process: as many as it has usable GPUs, if the config leaves
// the choice of the device; else one.
int workers_of_machine(const TrainConfig& config);

// What this rank must agree on with the others before they work together.
dist::Identity group_identity(const TrainConfig& config, const data::Prepared& data, const std::string& checkpoint);

// For gradients, where the backend's memory is. Null where the process group's own communicator does that.
std::unique_ptr<dist::Communicator> make_gradient_communicator(dist::ProcessGroup& group, backend::Backend& backend,
                                                               const DistConfig& config);

}  // namespace tandem::train
