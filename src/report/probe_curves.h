// Curves of probe records: what the ranks' machines were doing.
#pragma once

#include "report/curves.h"

namespace tandem::report {

// As the table "probe <rank>". Probes come by the clock: they are placed between the steps of `main`, the first rank.
Table probe_table(const observe::RankMetrics& metrics, const observe::RankMetrics& main, size_t most_points);

// Of these tables. Lines may name columns without values.
std::vector<Chart> probe_charts(const observe::RunData& run);

}  // namespace tandem::report
