// How long a step and the whole run take.
#pragma once

#include <cmath>
#include <optional>
#include <string>

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem::observe {

// Step time from blocks of the newest fifth of the records since the last start (10 at least): earlier starts may have
// been on other machines. Pauses are rare, so theirs is the mean of the whole run.
struct Pace {
  double seconds = kUnknown;  // seconds per step, pauses included
  double error = kUnknown;    // standard error of a mean over `block_steps` steps; NaN: too few records
  double block_steps = 0;
  double pause_error = 0;  // 95 % error of the pauses' seconds per step
  int blocks = 0;
  bool has_error() const { return blocks >= 3; }
};
Pace pace_of(const RankMetrics& metrics);

// What is left until the first of the planned ends.
struct Left {
  double steps = kUnknown;                 // NaN: not known
  double seconds = kUnknown;               // NaN: not known
  double low = kUnknown, high = kUnknown;  // 95 % interval of `seconds`
  bool known() const { return !std::isnan(seconds); }
  bool has_interval() const { return high > low; }
};

struct Duration {
  bool trained = false;  // a training step is recorded
  int64_t steps = 0;
  double elapsed = 0;  // seconds of training
  double pairs = 0, source_tokens = 0, target_tokens = 0, epochs = kUnknown;
  Pace pace;
  Left left;
  std::optional<std::string> end;  // why the run ended, which may be empty; none: it has not
  double silence = 0;              // seconds since the newest record
  double price = 0;                // cost of an hour; 0 = not given
  bool many_hosts = false;
  bool ended() const { return trained && end.has_value(); }
  bool has_price() const { return price > 0; }
  double cost(double seconds) const { return seconds / 3600 * price; }
};
// `now`: Unix seconds, or 0 if the time of reading means nothing (a copy).
Duration duration_of(const RankMetrics& metrics, const RunPlan& plan, double now, double price_per_hour);

struct StepTimes {
  size_t records = 0;  // records with a step time
  TrainPoint sums;
  double median = kUnknown, p95 = kUnknown;  // seconds per step
  double slowdown = 1;            // median of the last quarter over the second's; 1 = not slower beyond noise
  int64_t started_at = 0;         // step of the last start
  double since_start = kUnknown;  // mean step time since then, if it differs from the whole run's
  double all() const { return sums.step_seconds() + sums.pause_seconds(); }
  double mean() const { return sums.step_seconds() / sums.steps; }
  double with_pauses() const { return all() / sums.steps; }
  double data_share() const { return sums.data_seconds / sums.step_seconds(); }
  double communication_share() const { return sums.communication_seconds / sums.step_seconds(); }
  double steps_per_record() const { return sums.steps / static_cast<double>(records); }
  bool every_step_recorded() const { return steps_per_record() < 1.5; }
  double pause_share() const { return sums.pause_seconds() / all(); }
};
StepTimes step_times_of(const RankMetrics& metrics);

// Labels: ended, running, silent (not ended, but no record for long), empty.
Verdict how_long(const Duration& duration);

// Labels: the first that applies of slowing_down, slow_data (waiting for data takes much of a step) and
// evaluation_heavy (validations and checkpoints take much of the run), else steady; empty.
Verdict step_time(const StepTimes& times);

}  // namespace tandem::observe
