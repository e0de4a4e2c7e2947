// chrF (Popović, 2015) and chrF++ (Popović, 2017), with sacreBLEU's numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/metric.h"

namespace tandem::text {

struct ChrfOptions {
  int char_order = 6;
  int word_order = 0;  // 2 = chrF++
  int beta = 2;        // recall counts beta times as much as precision
  bool lowercase = false;
  bool whitespace = false;     // count white space as characters
  bool eps_smoothing = false;  // as in chrF++.py; otherwise only orders that both sides have are averaged
};

struct ChrfStats {
  struct Order {
    int64_t hypothesis = 0, reference = 0, matches = 0;
  };
  std::vector<Order> orders;  // character n-grams, then word n-grams

  ChrfStats& operator+=(const ChrfStats& other);
};

std::vector<ChrfStats> statistics(Lines hypotheses, const References& references, const ChrfOptions& options);
MetricScore score(const ChrfStats& stats, const ChrfOptions& options);
std::string signature(const ChrfOptions& options, size_t references);

}  // namespace tandem::text
