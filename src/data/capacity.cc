#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/batcher.h"

namespace tandem::data {

namespace {

constexpr int64_t kGranule = 64;  // rows: a multiple of the tile widths of matrix products
constexpr int kSizes = 8;         // capacities for a sentence budget

// Statistics of the pairs that are short enough; lengths include end marks.
struct Lengths {
  double pairs = 0;
  double source = 0, target = 0;              // means
  double source2 = 0, target2 = 0, both = 0;  // variances and covariance
  int64_t longest_source = 0, longest_target = 0;
};

Lengths measure(const Corpus& corpus, int64_t max_length) {
  Lengths sums;
  for (int64_t pair = 0; pair < corpus.size(); ++pair) {
    const int64_t s = corpus.length(Side::source, pair) + 1, t = corpus.length(Side::target, pair) + 1;
    if (std::max(s, t) > max_length) {
      continue;
    }
    const auto x = static_cast<double>(s), y = static_cast<double>(t);
    sums.pairs += 1;
    sums.source += x;
    sums.target += y;
    sums.source2 += x * x;
    sums.target2 += y * y;
    sums.both += x * y;
    sums.longest_source = std::max(sums.longest_source, s);
    sums.longest_target = std::max(sums.longest_target, t);
  }
  require(sums.pairs > 0, "no training pair has at most {} tokens on both sides: raise max_length", max_length);
  sums.source /= sums.pairs;
  sums.target /= sums.pairs;
  sums.source2 = sums.source2 / sums.pairs - sums.source * sums.source;
  sums.target2 = sums.target2 / sums.pairs - sums.target * sums.target;
  sums.both = sums.both / sums.pairs - sums.source * sums.target;
  return sums;
}

int64_t rounded(double tokens, int64_t longest) {
  const auto wanted = std::max(static_cast<int64_t>(std::ceil(tokens)), longest);
  return (wanted + kGranule - 1) / kGranule * kGranule;
}

double root(double variance) { return std::sqrt(std::max(0.0, variance)); }

// The most pairs in nearly every micro-batch, if on average `pairs` pairs of this length and variance fill it.
int64_t most_pairs(double pairs, double length, double length2) {
  return static_cast<int64_t>(std::ceil(pairs + 4 * root(length2) / length * std::sqrt(pairs) + 8));
}

// The capacity for `tokens` on the longer side.
MicroBatchCapacity token_capacity(const Lengths& l, int64_t tokens) {
  const bool source_longer = l.source >= l.target;
  const double longer = std::max(l.source, l.target), shorter = std::min(l.source, l.target);
  const double ratio = shorter / longer, room = static_cast<double>(tokens), pairs = room / longer;
  const double longer2 = source_longer ? l.source2 : l.target2, shorter2 = source_longer ? l.target2 : l.source2;
  const double spread = root(shorter2 - 2 * ratio * l.both + ratio * ratio * longer2) * std::sqrt(pairs);
  const double other = std::min(room, ratio * room + 3 * spread);
  return {rounded(source_longer ? room : other, l.longest_source),
          rounded(source_longer ? other : room, l.longest_target), most_pairs(pairs, longer, longer2)};
}

}  // namespace

std::vector<MicroBatchCapacity> micro_batch_capacities(const Corpus& corpus, const BatchConfig& config, int64_t tokens,
                                                       int ranks) {
  const Lengths l = measure(corpus, config.max_length);
  if (config.sentences == 0) {
    const int64_t part =
        ranks == 1 ? config.tokens : std::min(config.tokens, config.tokens / ranks * 51 / 50 + config.max_length);
    return {token_capacity(l, tokens > 0 ? std::min(tokens, part) : part)};
  }
  const double pairs = static_cast<double>(config.sentences) / ranks;
  const int64_t most =
      ranks == 1
          ? config.sentences
          : std::min(config.sentences, most_pairs(pairs, l.source + l.target, l.source2 + 2 * l.both + l.target2));
  std::vector<MicroBatchCapacity> sizes;
  for (int i = 0; i < kSizes; ++i) {
    const double deviations = -2.5 + 6.5 * i / (kSizes - 1);  // up to four standard deviations
    const MicroBatchCapacity size{rounded(pairs * l.source + deviations * root(pairs * l.source2), l.longest_source),
                                  rounded(pairs * l.target + deviations * root(pairs * l.target2), l.longest_target),
                                  most};
    if (tokens > 0 && std::max(size.source, size.target) > tokens) {
      break;
    }
    if (sizes.empty() || size.source > sizes.back().source || size.target > sizes.back().target) {
      sizes.push_back(size);
    }
  }
  return sizes.empty() ? std::vector{token_capacity(l, tokens)} : sizes;
}

}  // namespace tandem::data
