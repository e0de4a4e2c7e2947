// Will the disk be full before the run ends?
#pragma once

#include "observe/run_reader.h"
#include "observe/verdicts/checkpoint_facts.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// Labels: ample, filling (full before the planned end, or within a day where no end is known), nearly_full (less than 2
// % or 1 GB is free), empty.
// The run's own checkpoints, as far as `checkpoint` knows them, are no trend: no more are kept than the config says.
Verdict disk(const RunData& run, const RunPlan& plan, const CheckpointFacts& checkpoint = {});

}  // namespace tandem
