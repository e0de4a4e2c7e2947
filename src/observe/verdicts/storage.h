// What lies on the disks: their free space, the run's checkpoints, its training set.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "observe/verdicts/duration.h"

namespace tandem::observe {

struct CheckpointFile {
  std::string name;   // "optimizer.safetensors"
  std::string role;   // as the manifest says: "weights", "training state", ...
  std::string holds;  // in words; may be empty
  double bytes = 0;
  bool inference = false;  // translating reads it
};

// What the checkpoints of a run consist of. The metrics do not say it: whoever asks fills it from the files.
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

  double bytes(bool for_inference) const;  // of the newest; of what translating reads
  double full_bytes() const { return bytes(false); }
  double inference_bytes() const { return bytes(true); }
};

// A disk, as the probes of a rank's host saw it. The run's own checkpoints, as far as they are known, are no trend: no
// more are kept than the config says.
struct DiskSpace {
  std::string where{};  // its host
  size_t probes = 0;
  double now = kUnknown, total = kUnknown;  // bytes that are free, bytes
  double rate = 0;                          // bytes a second that it fills with, beyond the run's own checkpoints
  double to_come = 0;                       // bytes that the run's own checkpoints will still take

  double room() const;             // what is left beside these
  double seconds_to_full() const;  // infinite: it does not fill up
};

struct Storage {
  CheckpointFacts checkpoint{};
  std::optional<DiskSpace> disk{};  // the one that is full first; none: not recorded
  bool ended = false;               // the run is over
  double left = kUnknown;           // seconds of training, as in Duration

  double free_bytes() const;       // for checkpoints
  double room_for() const;         // checkpoints
  double seconds_to_full() const;  // NaN: the disk does not fill up, or the run is over
};
Storage storage_of(const RunData& run, const CheckpointFacts& checkpoint, const Duration& duration);

// Will the disk be full before the run ends?
// Labels: ample, filling (full before the planned end, or within a day if no end is known), nearly_full (less than 2 %
// or 1 GB is free), empty.
Verdict disk(const Storage& storage);

// Labels: complete, damaged, none (there is no checkpoint yet).
Verdict checkpoint_contents(const Storage& storage);

// Labels: fits, disk_short (no room for two more: a new one is written before an old one goes), none.
Verdict checkpoint_size(const Storage& storage);

// Raw pairs that `tandem prepare` dropped, and their share.
double dropped_pairs(const PreparedStats& stats);
double dropped_share(const PreparedStats& stats);
// The vocabulary does not fit the text.
bool has_many_unknown(const PreparedStats& stats);

// What is the training set: raw, cleaned, encoded?
// Labels: fine, much_dropped (a tenth of the pairs or more), many_unknown (1 % of the pieces of a side or more: the
// vocabulary does not fit the text), empty (the counts of `tandem prepare` were not found).
Verdict training_set(const std::optional<PreparedStats>& stats);

}  // namespace tandem::observe
