// Are the GPUs doing work? By the arithmetic that they achieve and the power that they draw. "Utilisation" is the share
// of time in which any kernel ran; one that spins while it waits for the network counts, so it is never taken as work.
#pragma once

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// Labels: working (from 40 % of the measured peak on, the level of record-holding trainings), partly (from 10 % on),
// hardly, spinning (busy by "utilisation", at little power and little arithmetic), empty. Also for a CPU.
Verdict gpu_work(const RunData& run);

}  // namespace tandem
