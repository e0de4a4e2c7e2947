// Does one rank hold up the others?
#pragma once

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// Labels: even, slow_rank (a tenth of a step or more is lost to it, beyond noise), too_early (fewer than 3 windows),
// single, empty.
Verdict slow_rank(const RunData& run);

}  // namespace tandem
