// All that is known of a run and that its verdicts and their sentences rest on, computed once.
#pragma once

#include <optional>

#include "observe/verdicts/duration.h"
#include "observe/verdicts/exchange.h"
#include "observe/verdicts/gpu_work.h"
#include "observe/verdicts/learning.h"
#include "observe/verdicts/storage.h"

namespace tandem::observe {

struct RunFacts {
  Duration duration;
  StepTimes steps;
  Learning learning;
  Finiteness finiteness;
  RateCourse rates;
  Exchange exchange;
  GpuWork work;
  Storage storage;
  std::optional<PreparedStats> training_set;
};

// `now`: Unix seconds, or 0 if the time of reading says nothing (a copy). `price_per_hour` 0 = not given.
RunFacts facts_of(const RunData& run, const RunPlan& plan, const CheckpointFacts& checkpoint, double now,
                  double price_per_hour);

}  // namespace tandem::observe
