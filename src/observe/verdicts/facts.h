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
inline RunFacts facts_of(const RunData& run, const RunPlan& plan, const CheckpointFacts& checkpoint, double now,
                         double price_per_hour) {
  const RankMetrics& m = run.main();
  RunFacts facts;
  facts.duration = duration_of(m, plan, now, price_per_hour);
  facts.steps = step_times_of(m);
  facts.learning = learning_of(m, plan, facts.duration.pace);
  facts.finiteness = finiteness_of(m);
  facts.rates = rate_course_of(m, plan);
  facts.exchange = exchange_of(run);
  facts.work = gpu_work_of(run, facts.exchange.clocks);
  facts.storage = storage_of(run, checkpoint, facts.duration);
  facts.training_set = run.stats;
  return facts;
}

}  // namespace tandem::observe
