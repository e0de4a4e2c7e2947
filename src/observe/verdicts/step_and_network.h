// How do step time and network go together?
//
// Every step sends the same bytes, so megabytes a second are bytes over step time: more of them are the result of
// faster steps. Whether the network limits is seen in the time that steps wait for it, not in the rate.
#pragma once

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem {

// Labels: network_sets_the_pace (a tenth of a step or more waits for the network), steps_set_the_rate, too_early (fewer
// than 5 windows), single, empty.
Verdict step_and_network(const RunData& run);

}  // namespace tandem
