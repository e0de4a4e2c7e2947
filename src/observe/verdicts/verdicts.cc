#include "observe/verdicts/verdicts.h"

#include "observe/verdicts/checkpoint.h"
#include "observe/verdicts/disk.h"
#include "observe/verdicts/gpu_work.h"
#include "observe/verdicts/how_long.h"
#include "observe/verdicts/learning_rate.h"
#include "observe/verdicts/network.h"
#include "observe/verdicts/nonfinite.h"
#include "observe/verdicts/overfitting.h"
#include "observe/verdicts/slow_rank.h"
#include "observe/verdicts/step_and_network.h"
#include "observe/verdicts/step_time.h"
#include "observe/verdicts/trained_enough.h"
#include "observe/verdicts/training_set.h"

namespace tandem {

std::vector<Verdict> all_verdicts(const RunData& run, const RunPlan& plan, const CheckpointFacts& checkpoint,
                                  double now, double price_per_hour) {
  return {how_long(run, plan, now, price_per_hour),
          trained_enough(run, plan),
          overfitting(run),
          gpu_work(run),
          network(run),
          learning_rate_explained(run, plan),
          training_set(run),
          checkpoint_contents(checkpoint),
          checkpoint_size(checkpoint, run, plan),
          step_time(run),
          step_and_network(run),
          slow_rank(run),
          nonfinite(run),
          disk(run, plan, checkpoint)};
}

}  // namespace tandem
