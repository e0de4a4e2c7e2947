// How long did or will the run take, and what does it cost?
#pragma once

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// Labels: ended, running, silent (not ended, but no record for long), empty. `now`: Unix seconds, or 0 where the time
// of reading says nothing (a copy). `price_per_hour` 0 = not given.
Verdict how_long(const RunData& run, const RunPlan& plan, double now, double price_per_hour);

// The last `end` event, when nothing was trained after it; else null.
const EventPoint* end_of(const RankMetrics& metrics);

// Recent seconds for a step, validations and checkpoints counted; NaN when not known.
double recent_seconds_per_step(const RankMetrics& metrics);

}  // namespace tandem
