// The directory of one training run: its layout, and the lock that keeps a second trainer out.
#pragma once

#include <filesystem>
#include <optional>

#include "core/file.h"

namespace tandem::store {

class RunDirectory {
 public:
  // Creates the directory where needed and takes its lock for as long as this object lives. Fails with one sentence
  // when it cannot be written, is something else than a run directory, or another process trains in it.
  // A guest takes no lock: a rank of a process group whose first rank on this disk holds it.
  enum class Use : bool { own, guest };
  explicit RunDirectory(const std::filesystem::path& root, Use use = Use::own);

  // Holds the name of the launch that started over here last.
  static constexpr const char* kLaunchFile = "launch";

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path config() const { return root_ / "config.toml"; }         // the effective config
  std::filesystem::path statistics() const { return root_ / "stats.json"; }      // of the prepared data, a copy
  std::filesystem::path log() const { return root_ / "train.log"; }              //
  std::filesystem::path metrics() const { return root_ / "metrics"; }            // <rank>.jsonl
  std::filesystem::path events() const { return root_ / "tensorboard"; }         // TensorBoard event files
  std::filesystem::path algorithms() const { return root_ / "algorithms.txt"; }  // table that the run computes with
  std::filesystem::path checkpoints() const { return root_ / "checkpoints"; }
  std::filesystem::path rank_log(int rank) const;  // logs/rank-N.log, of ranks that are not the first

  // Removes everything a former run left here, and nothing else: to start over.
  void clear();

  // Removes the directory where it is this object's own making: nothing was trained.
  void abandon();

 private:
  void make_directories() const;
  void erase_all();

  std::filesystem::path cleared() const { return root_ / ".cleared"; }  // what clear() was deleting

  std::filesystem::path root_;
  bool is_new_;
  std::optional<FileLock> lock_;
};

}  // namespace tandem::store
