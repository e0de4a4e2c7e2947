// Were there numbers that are not finite, and what was done about them?
#pragma once

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// Labels: none, skipped, rolled_back, diverged (the newest losses are not finite), empty.
Verdict nonfinite(const RunData& run);

// The newest train record or validation has a loss that is not finite.
bool diverged(const RankMetrics& metrics);

}  // namespace tandem
