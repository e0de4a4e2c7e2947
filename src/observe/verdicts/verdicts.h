// Every question at once.
#pragma once

#include <vector>

#include "observe/run_reader.h"
#include "observe/verdicts/checkpoint_facts.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// In the order of the report. `now`: Unix seconds, or 0 where the time of reading says nothing (a copy).
// `price_per_hour` 0 = not given.
std::vector<Verdict> all_verdicts(const RunData& run, const RunPlan& plan, const CheckpointFacts& checkpoint,
                                  double now, double price_per_hour);

}  // namespace tandem
