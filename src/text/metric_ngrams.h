// Counts of n-grams of words or characters within one segment.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace tandem::text::metric {

// [order - 1][number of the n-gram] = how often it occurs. Counts made by one counter share their numbers; an earlier
// sequence's counts may be shorter, and the missing ones are zero.
using NgramCounts = std::vector<std::vector<int64_t>>;

class NgramCounter {
 public:
  explicit NgramCounter(int max_order) : numbers_(static_cast<size_t>(max_order)) {}

  NgramCounts operator()(std::span<const uint32_t> tokens);

 private:
  // [order - 1]: (number of the n-gram without its last token, last token) -> number of the n-gram
  std::vector<std::unordered_map<uint64_t, uint32_t>> numbers_;
};

int64_t total(const std::vector<int64_t>& counts);
// Sum over n-grams of the smaller count.
int64_t matches(const std::vector<int64_t>& a, const std::vector<int64_t>& b);
// `counts` becomes the larger of both for every n-gram.
void keep_larger(NgramCounts& counts, const NgramCounts& other);

}  // namespace tandem::text::metric
