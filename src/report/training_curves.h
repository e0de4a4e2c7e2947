// Curves of train and valid records.
#pragma once

#include "report/curves.h"

namespace tandem::report {

// The first rank's train records, as the table "train".
Table train_table(const observe::RankMetrics& metrics, const observe::RunPlan& plan, size_t most_points);
Table valid_table(const observe::RankMetrics& metrics, size_t most_points);
// What differs between ranks, as the table "train <rank>".
Table rank_table(const observe::RankMetrics& metrics, size_t most_points);

// Of these tables. Lines may name columns without values.
std::vector<Chart> training_charts(const observe::RunData& run);

}  // namespace tandem::report
