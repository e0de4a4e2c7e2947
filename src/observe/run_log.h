// The log of a run: every record is written to metrics/<rank>.jsonl and, on rank 0, as scalars or texts to TensorBoard,
// with equal values (TensorBoard's are f32).
//
// In TensorBoard, a number `key` of a record of `kind` has the tag <kind>/<key>, except for run_log.cc's table of tags.
// A sample (kind "sample", with a number `index`) becomes a text with the tag sample/<index>, a setup one with the tag
// setup. Probes, without net.*, are merged to one point a minute; their sums become rates, probe/<key>_per_second.
// Records of kind "event" are not written to TensorBoard, as they are not for curves.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "observe/metrics_writer.h"
#include "observe/tensorboard.h"

namespace tandem::observe {

class RunLog {
 public:
  // `done`: the step of the checkpoint that the run resumes from; records of later steps are cut off. Nothing = the run
  // starts from the beginning: all earlier records are cut off.
  RunLog(const std::filesystem::path& metrics, const std::filesystem::path& events, int rank = 0,
         std::optional<int64_t> done = std::nullopt);

  // Steps must not go down, except those of probes, whose thread does not know the step: they get that of the last
  // record before them. Never fails: see append_file.h.
  void write(const Record& record);

  // Continues after a return to the checkpoint of step `done` in the same process.
  void rewind(int64_t done);

  // Both go to TensorBoard only.
  void hyperparameters(const Hyperparameters& values);
  void text(int64_t step, const std::string& tag, const std::string& markdown);

  // Flushes the metrics to the disk, for example after a validation.
  void sync() { metrics_.sync(); }
  Descriptor metrics() const { return metrics_.duplicate(); }  // the open file
  void finish(bool success);

 private:
  void write_events(const Record& record);
  void write_scalars(const Record& record);
  void hold_probe(const Record& record);

  MetricsWriter metrics_;
  std::optional<EventWriter> events_;  // rank 0 only
  std::optional<Record> probe_;        // merged probes of the current minute
  int64_t step_ = 0;                   // step of the last record that is not a probe
};

// TensorBoard's tag for a record's number.
std::string tag_of(const std::string& kind, const std::string& key);

}  // namespace tandem::observe
