#include "text/metric_ngrams.h"

#include <algorithm>
#include <numeric>

namespace tandem::text::metric {

NgramCounts NgramCounter::operator()(std::span<const uint32_t> tokens) {
  NgramCounts counts(numbers_.size());
  std::vector<uint32_t> prefix(tokens.size(), 0);  // at i: number of the (n-1)-gram that begins there
  for (size_t n = 0; n < numbers_.size() && n < tokens.size(); ++n) {
    auto& numbers = numbers_[n];
    auto& count = counts[n];
    count.resize(numbers.size());
    for (size_t i = 0; i + n < tokens.size(); ++i) {
      const uint64_t key = uint64_t{prefix[i]} << 32 | tokens[i + n];
      const uint32_t number = numbers.try_emplace(key, static_cast<uint32_t>(numbers.size())).first->second;
      prefix[i] = number;
      count.resize(numbers.size());
      ++count[number];
    }
  }
  return counts;
}

int64_t total(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

int64_t matches(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  int64_t sum = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    sum += std::min(a[i], b[i]);
  }
  return sum;
}

void keep_larger(NgramCounts& counts, const NgramCounts& other) {
  for (size_t n = 0; n < counts.size(); ++n) {
    counts[n].resize(std::max(counts[n].size(), other[n].size()));
    for (size_t i = 0; i < other[n].size(); ++i) {
      counts[n][i] = std::max(counts[n][i], other[n][i]);
    }
  }
}

}  // namespace tandem::text::metric
