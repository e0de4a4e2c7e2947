// What is the training set: raw, cleaned, encoded?
#pragma once

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// Labels: fine, much_dropped (a tenth of the pairs or more), many_unknown (1 % of the pieces of a side or more: the
// vocabulary does not fit the text), empty (the counts of `tandem prepare` were not found).
Verdict training_set(const RunData& run);

}  // namespace tandem
