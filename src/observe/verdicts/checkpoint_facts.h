// What the checkpoints of a run consist of. The metrics do not say it: whoever asks fills it from the files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/run_points.h"

namespace tandem {

struct CheckpointFile {
  std::string name;   // "optimizer.safetensors"
  std::string role;   // as the manifest says: "weights", "training state", ...
  std::string holds;  // in words; may be empty
  double bytes = 0;
  bool inference = false;  // translating reads it
};

struct CheckpointFacts {
  std::string path{};                   // of the newest checkpoint
  int64_t step = -1;                    // its step; -1 = there is none
  double parameters = kUnknown;         // of the model
  std::vector<CheckpointFile> files{};  // of the newest, with its manifest
  double kept = 0;                      // checkpoints on the disk
  double kept_bytes = kUnknown;         // of all of them
  double most_kept = kUnknown;          // the config's limit; NaN = not known
  double disk_free_bytes = kUnknown;    // of their filesystem; NaN: the probes' newest is taken
  std::vector<std::string> problems{};  // of the newest, one sentence each
};

}  // namespace tandem
