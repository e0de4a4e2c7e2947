// The disks: their free space, the run's checkpoints, its training set.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "observe/verdicts/duration.h"

namespace tandem::observe {

struct CheckpointFile {
  std::string name;   // "optimizer.safetensors"
  std::string role;   // role in the manifest: "weights", "training state", ...
  std::string holds;  // content in words; may be empty
  double bytes = 0;
  bool inference = false;  // translating reads it
};

// What the checkpoints of a run consist of. The metrics do not have this: the caller fills it from the files.
struct CheckpointFacts {
  std::string path{};                   // path of the newest checkpoint
  int64_t step = -1;                    // its step; -1 = there is none
  double parameters = kUnknown;         // parameters of the model
  std::vector<CheckpointFile> files{};  // files of the newest, with its manifest
  double kept = 0;                      // checkpoints on the disk
  double kept_bytes = kUnknown;         // bytes of all of them
  double most_kept = kUnknown;          // the config's limit; NaN = not known
  double disk_free_bytes = kUnknown;    // free bytes of their filesystem; NaN: the newest probe's are taken
  std::vector<std::string> problems{};  // problems of the newest, one line each

  double bytes(bool for_inference) const;  // bytes of the newest, or of what translating reads of it
  double full_bytes() const { return bytes(false); }
  double inference_bytes() const { return bytes(true); }
};

// Whether a number of checkpoints makes sense: nobody has a billion.
inline bool is_count(double checkpoints) { return checkpoints >= 0 && checkpoints < 1e9; }

// A disk as the probes of a rank's host measured it. The run's own checkpoints, if known, are not part of the trend, as
// the config limits how many are kept.
struct DiskSpace {
  std::string where{};  // name of its host
  size_t probes = 0;
  double now = kUnknown, total = kUnknown;  // free bytes, all bytes
  double rate = 0;                          // bytes per second by which it fills, without the run's own checkpoints
  double to_come = 0;                       // bytes that the run's own checkpoints will still take

  double room() const;             // free bytes minus these; 0 at least
  double seconds_to_full() const;  // infinite: it does not fill up
  bool used_up() const { return room() <= 0; }
  bool fills() const { return rate > 0; }
};

struct Storage {
  CheckpointFacts checkpoint{};
  std::optional<DiskSpace> disk{};  // the disk that is full first; none: not recorded
  bool ended = false;               // the run is over
  double left = kUnknown;           // remaining seconds, as in Duration

  double free_bytes() const;       // free bytes for checkpoints
  double room_for() const;         // number of checkpoints that fit
  double seconds_to_full() const;  // NaN: the disk does not fill up, or the run is over
};
Storage storage_of(const RunData& run, const CheckpointFacts& checkpoint, const Duration& duration);

// Will the disk be full before the run ends?
// Labels: ample, filling (full before the planned end, or within a day if no end is known), nearly_full (less than 2 %
// or 1 GB is free), empty.
Verdict disk(const Storage& storage);

// Labels: complete, damaged, none (there is no checkpoint yet).
Verdict checkpoint_contents(const Storage& storage);

// Labels: fits, disk_short (no room for two more: a new one is written before an old one is removed), none.
Verdict checkpoint_size(const Storage& storage);

// Raw pairs that `tandem prepare` dropped, and their share.
double dropped_pairs(const PreparedStats& stats);
double dropped_share(const PreparedStats& stats);
// Whether there are so many unknown pieces that the vocabulary does not fit the text.
bool has_many_unknown(const PreparedStats& stats);

// What is the training set: raw, cleaned, encoded?
// Labels: fine, much_dropped (a tenth of the pairs or more), many_unknown (1 % of the pieces of a side or more: the
// vocabulary does not fit the text), empty (the counts of `tandem prepare` were not found).
Verdict training_set(const std::optional<PreparedStats>& stats);

}  // namespace tandem::observe
