// Translation edit rate (Snover et al., 2006) as tercom computes it, with sacreBLEU's numbers.
#pragma once

#include <cstdint>
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

using TerScore = MetricScore;

std::vector<TerStats> statistics(Lines hypotheses, const References& references, const TerOptions& options);
TerScore score(const TerStats& stats, const TerOptions& options);
std::string signature(const TerOptions& options, size_t references);

TerScore corpus_ter(Lines hypotheses, const References& references, const TerOptions& options = {});

}  // namespace tandem::text
