// Were there numbers that are not finite, and what was done about them?
#pragma once

#include <optional>

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// Labels: none, skipped, rolled_back, diverged (the newest losses are not finite), empty.
Verdict nonfinite(const RunData& run);

// The step since which every loss is not finite, up to the newest train record or validation, or every step is skipped.
std::optional<int64_t> diverged_since(const RankMetrics& metrics);

}  // namespace tandem
