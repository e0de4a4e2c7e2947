// What does a checkpoint consist of, and how big is it?
#pragma once

#include "observe/run_reader.h"
#include "observe/verdicts/checkpoint_facts.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// Labels: complete, damaged, none (there is no checkpoint yet).
Verdict checkpoint_contents(const CheckpointFacts& facts);

// Labels: fits, disk_short (no room for two more: a new one is written before an old one goes), none.
Verdict checkpoint_size(const CheckpointFacts& facts, const RunData& run, const RunPlan& plan);

}  // namespace tandem
