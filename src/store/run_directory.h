// The directory of one training run: its layout, and the lock that allows one trainer at a time.
#pragma once

#include <filesystem>
#include <optional>

#include "core/file.h"

namespace tandem::store {

class RunDirectory {
 public:
  // Creates the directory if needed and holds its lock while this object lives. Fails if it cannot be written, is not a
  // run directory, or another process trains in it. A guest takes no lock: the first rank of its process group on this
  // disk holds it.
  enum class Use : bool { own, guest };
  explicit RunDirectory(const std::filesystem::path& root, Use use = Use::own);

  // Holds the name of the launch that started over here last.
  static constexpr const char* kLaunchFile = "launch";

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path config() const { return root_ / "config.toml"; }         // the effective config
  std::filesystem::path statistics() const { return root_ / "stats.json"; }      // copy of the prepared data's
  std::filesystem::path log() const { return root_ / "train.log"; }              //
  std::filesystem::path metrics() const { return root_ / "metrics"; }            // directory of <rank>.jsonl
  std::filesystem::path events() const { return root_ / "tensorboard"; }         // TensorBoard event files
  std::filesystem::path algorithms() const { return root_ / "algorithms.txt"; }  // the run's table of algorithms
  std::filesystem::path checkpoints() const { return root_ / "checkpoints"; }
  std::filesystem::path rank_log(int rank) const;  // logs/rank-N.log, for ranks above 0

  // Removes everything that a former run left here, and nothing else: to start over.
  void clear();

  // Removes the directory if this object created it, because nothing was trained.
  void abandon();

 private:
  void make_directories() const;
  void erase_all();

  std::filesystem::path cleared() const { return root_ / ".cleared"; }  // checkpoints that clear() is deleting

  std::filesystem::path root_;
  bool is_new_;
  std::optional<FileLock> lock_;
};

}  // namespace tandem::store
