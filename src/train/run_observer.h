// What a run tells about itself while it goes on: metrics of this rank, probes of its host and GPU, and the report.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "observe/probes/host_probes.h"
#include "observe/run_log.h"
#include "train/learner.h"
#include "train/validator.h"

namespace tandem::train {

class RunObserver {
 public:
  // done: the step that the run goes on from; nothing = from the beginning.
  // gpu: its PCI bus id, or empty.
  RunObserver(GroupRun& run, const TrainConfig& config, const std::string& gpu, std::optional<int64_t> done);

  // From any thread; records of steps come in rising order.
  void write(const observe::Record& record);
  void set_step(int64_t step) { step_ = step; }  // that probes belong to
  // Logs a validation and writes its records: "valid" and one "sample" for each sample translation.
  void write_validation(const ValidationResult& result, const store::CheckpointState& state, double seconds);
  void rewind(int64_t done);
  void sync();
  // report.html, .md and .json in the run directory; on the first rank. A report that cannot be made is a warning.
  void write_report();
  void finish(bool success);

 private:
  GroupRun& run_;
  std::mutex mutex_;  // of the log
  observe::RunLog log_;
  std::atomic<int64_t> step_;
  std::optional<observe::HostProbes> probes_;  // last: its thread writes
};

// Writes what those who read the run later need: settings, statistics of the data, algorithms.
void write_settings(const GroupRun& run, const data::Prepared& data, const std::string& algorithms);

observe::Record setup_record(GroupRun& run, Learner& learner, backend::Backend& backend, const TrainConfig& config,
                             const store::CheckpointState& state);

}  // namespace tandem::train
