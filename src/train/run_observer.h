// Records a run while it trains: metrics of this rank, probes of its host and GPU, and the report.
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
  // done: the step from which the run resumes; nothing = it begins. gpu: its PCI bus id, or empty.
  RunObserver(GroupRun& run, const TrainConfig& config, const std::string& gpu, std::optional<int64_t> done);

  // May be called from any thread; steps of records must ascend.
  void write(const observe::Record& record);
  void set_step(int64_t step) { step_ = step; }  // step for records of probes
  // Logs a validation and writes its records: "valid" and one "sample" for each sample translation.
  void write_validation(const ValidationResult& result, const store::CheckpointState& state, double seconds);
  void rewind(int64_t done);
  void sync();  // flushes the metrics to the disk; from any thread
  // Writes report.html, .md and .json to the run directory, on the first rank. If that fails, logs a warning.
  void write_report();
  void finish(bool success);

 private:
  GroupRun& run_;
  std::mutex mutex_;  // guards log_
  observe::RunLog log_;
  std::atomic<int64_t> step_;
  std::optional<observe::HostProbes> probes_;  // last, because its thread writes to log_
};

// Writes settings, statistics of the data and algorithms for those who read the run later.
void write_settings(const GroupRun& run, const data::Prepared& data, const std::string& algorithms);

observe::Record setup_record(GroupRun& run, Learner& learner, backend::Backend& backend, const TrainConfig& config,
                             const store::CheckpointState& state);

}  // namespace tandem::train
