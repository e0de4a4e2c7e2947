// From a line of metrics to a point, and from two neighbouring points to one.
#pragma once

#include <string>
#include <string_view>

#include "observe/fields.h"
#include "observe/metrics_line.h"

namespace tandem {

// What is summed and not believable (below 0, beyond 1e15, not finite) counts as 0 or as unknown; so does what is so
// small, below 1e-15, that a rate made of it might not be finite.
double plausible(double value);
double plausible_or_unknown(double value);

// Cut to what a report shows, between two characters.
constexpr size_t kLongestText = 1 << 12, kLongestName = 128;  // bytes
std::string kept_text(std::string_view text, size_t longest = kLongestText);

// `previous`: the step of the train record before this one.
TrainPoint train_point(const MetricsLine& line, int64_t previous);
ValidPoint valid_point(const MetricsLine& line);
SetupPoint setup_point(const MetricsLine& line);
ProbePoint probe_point(const MetricsLine& line);

// Sums added, means weighted by steps (by seconds), the rest as in `second`.
TrainPoint merged(const TrainPoint& first, const TrainPoint& second);
ProbePoint merged(const ProbePoint& first, const ProbePoint& second);

}  // namespace tandem
