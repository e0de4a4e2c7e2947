// BLEU (Papineni et al., 2002) of detokenised text, with sacreBLEU's tokenizers, smoothing and numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/metric.h"

namespace tandem::text {

struct BleuOptions {
  std::string tokenizer = "13a";  // 13a, intl, char, none
  bool lowercase = false;
  std::string smoothing = "exp";  // exp, floor, add-k, none
  double smooth_value = -1;       // for floor and add-k; negative: their defaults, 0.1 and 1
  int max_order = 4;
  bool effective_order = false;  // leave out orders for which the translation is too short; for single sentences
};

struct BleuStats {
  int64_t hypothesis_length = 0, reference_length = 0;  // tokens; reference_length is the closest reference's
  std::vector<int64_t> matches, totals;                 // [order - 1]

  BleuStats& operator+=(const BleuStats& other);
};

struct BleuScore : MetricScore {
  std::vector<double> precisions;  // [order - 1], percent, smoothed
  double brevity_penalty = 0;
  int64_t hypothesis_length = 0, reference_length = 0;
};

std::vector<BleuStats> statistics(Lines hypotheses, const References& references, const BleuOptions& options);
BleuScore score(const BleuStats& stats, const BleuOptions& options);
std::string signature(const BleuOptions& options, size_t references);

}  // namespace tandem::text
