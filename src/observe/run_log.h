// What a run leaves behind about itself: every record goes to metrics/<rank>.jsonl and, on rank 0, as scalars or texts
// to TensorBoard, with equal values (TensorBoard's are f32).
//
// A number `key` of a record of `kind` has the tag <kind>/<key>, but for those in run_log.cc's table of tags.
// Samples (kind "sample", with a number `index`) become one text each, tag sample/<index>, a setup one with the tag
// setup. Probes, the run's own interface alone, are merged to one point a minute; their sums become rates,
// probe/<key>_per_second. Records of kind "event" are not for curves and stay out of TensorBoard.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "observe/metrics_writer.h"
#include "observe/tensorboard.h"

namespace tandem::observe {

class RunLog {
 public:
  // `done`: the step of the checkpoint that the run goes on from; records of later steps are cut off. Nothing = from
  // the beginning: all former records are cut off.
  RunLog(const std::filesystem::path& metrics, const std::filesystem::path& events, int rank = 0,
         std::optional<int64_t> done = std::nullopt);

  // Records come in rising order of steps, but for probes, whose thread does not know the step: they get that of the
  // last record before them. Never fails: see append_file.h.
  void write(const Record& record);

  // After a return to the checkpoint of step `done` within the same process.
  void rewind(int64_t done);

  // For TensorBoard only.
  void hyperparameters(const Hyperparameters& values);
  void text(int64_t step, const std::string& tag, const std::string& markdown);

  // Onto the disk, for example after a validation.
  void sync() { metrics_.sync(); }
  void finish(bool success);

 private:
  void write_events(const Record& record);
  void write_scalars(const Record& record);
  void hold_probe(const Record& record);

  MetricsWriter metrics_;
  std::optional<EventWriter> events_;  // rank 0
  std::optional<Record> probe_;        // of the minute that is not over
  int64_t step_ = 0;                   // of the last record that is no probe
};

// TensorBoard's tag for a record's number.
std::string tag_of(const std::string& kind, const std::string& key);

}  // namespace tandem::observe
