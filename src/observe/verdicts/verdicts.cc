#include "observe/verdicts/verdicts.h"

#include "observe/verdicts/how_long.h"
#include "observe/verdicts/learning_rate.h"
#include "observe/verdicts/nonfinite.h"
#include "observe/verdicts/overfitting.h"
#include "observe/verdicts/step_time.h"
#include "observe/verdicts/trained_enough.h"

namespace tandem {

std::vector<Verdict> all_verdicts(const RunData& run, const RunPlan& plan, const CheckpointFacts&, double now,
                                  double price_per_hour) {
  return {how_long(run, plan, now, price_per_hour), trained_enough(run), overfitting(run), step_time(run),
          learning_rate_explained(run, plan),       nonfinite(run)};
}

}  // namespace tandem
