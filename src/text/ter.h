// Translation edit rate (Snover et al., 2006) as tercom computes it, with sacreBLEU's numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/metric.h"

namespace tandem::text {

struct TerOptions {
  bool normalized = false;     // decode entities, cut off punctuation
  bool no_punct = false;       // remove punctuation
  bool asian_support = false;  // apply both of these to Chinese and Japanese characters too
  bool case_sensitive = false;
};

struct TerStats {
  int64_t edits = 0;            // against the best reference
  double reference_length = 0;  // words, mean over the references

  TerStats& operator+=(const TerStats& other);
};

// Edits that turn one sequence of word numbers into the other: shifts of word groups, insertions, deletions and
// substitutions, found by tercom's greedy search with its limits on shifts and its beam around the diagonal, in the
// variant of the sacreBLEU package. Memory is linear in the lengths.
int64_t translation_edits(std::span<const uint32_t> hypothesis, std::span<const uint32_t> reference);

std::vector<TerStats> statistics(Lines hypotheses, const References& references, const TerOptions& options);
MetricScore score(const TerStats& stats, const TerOptions& options);
std::string signature(const TerOptions& options, size_t references);

}  // namespace tandem::text
