// How long a step and the whole run take.
#pragma once

#include <optional>
#include <string>

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem::observe {

// Step time of the newest fifth of the run (or 10 records) since it was last started, perhaps on other machines, in
// blocks; pauses are rare, so they are of the whole run.
struct Pace {
  double seconds = kUnknown;  // a step, pauses counted
  double error = kUnknown;    // of the mean of `block_steps` steps; NaN: too few records
  double block_steps = 0;
  double pause_error = 0;  // 95 % error of what pauses add to a step
  int blocks = 0;
  bool has_error() const { return blocks >= 3; }
};
Pace pace_of(const RankMetrics& metrics);

// Until the first of the planned ends.
struct Left {
  double steps = kUnknown;                 // NaN: the end is given by time, or not at all
  double seconds = kUnknown;               // NaN: no end is known
  double low = kUnknown, high = kUnknown;  // seconds, 95 %
};

struct Duration {
  bool trained = false;  // a training step is recorded
  int64_t steps = 0;
  double elapsed = 0;  // seconds of training
  double pairs = 0, source_tokens = 0, target_tokens = 0, epochs = kUnknown;
  Pace pace;
  Left left;
  std::optional<std::string> end;  // why the run ended, which may be empty
  double silence = 0;              // seconds since the newest record
  double price = 0;                // an hour; 0 = not given
  bool many_hosts = false;
  double cost(double seconds) const { return seconds / 3600 * price; }
};
// `now`: Unix seconds, or 0 if the time of reading says nothing (a copy).
Duration duration_of(const RankMetrics& metrics, const RunPlan& plan, double now, double price_per_hour);

struct StepTimes {
  size_t records = 0;  // with a step time
  TrainPoint sums;
  double median = kUnknown, p95 = kUnknown;  // seconds a step
  double slowdown = 1;            // median late in the run over that of its second quarter; 1 = not beyond noise
  int64_t started_at = 0;         // the step of the last start, and
  double since_start = kUnknown;  // the mean step time since then, if it differs from that of the whole run
  double all() const { return sums.step_seconds() + sums.pause_seconds(); }
  double mean() const { return sums.step_seconds() / sums.steps; }
  double with_pauses() const { return all() / sums.steps; }
  double data_share() const { return sums.data_seconds / sums.step_seconds(); }
  double communication_share() const { return sums.communication_seconds / sums.step_seconds(); }
  double steps_per_record() const { return sums.steps / static_cast<double>(records); }
  double pause_share() const { return sums.pause_seconds() / all(); }
};
StepTimes step_times_of(const RankMetrics& metrics);

// Labels: ended, running, silent (not ended, but no record for long), empty.
Verdict how_long(const Duration& duration);

// Labels: steady, slowing_down, slow_data (waiting for data takes much of a step), evaluation_heavy (validations and
// checkpoints take much of the run), empty. The first that applies, in that order after steady.
Verdict step_time(const StepTimes& times);

}  // namespace tandem::observe
