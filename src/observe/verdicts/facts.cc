#include "observe/verdicts/facts.h"

namespace tandem::observe {

RunFacts facts_of(const RunData& run, const RunPlan& plan, const CheckpointFacts& checkpoint, double now,
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
