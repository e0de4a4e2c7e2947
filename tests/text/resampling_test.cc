#include <gtest/gtest.h>

#include "text/bleu.h"
#include "text/chrf.h"
#include "text/ter.h"

namespace tandem::text {
namespace {

// Statistics of a sentence of 10 to 30 words of which a share, its own quality, is right.
BleuStats sentence(PhiloxStream& random) {
  const auto length = static_cast<int64_t>(10 + random.below(21));
  const double quality = 0.5 + 0.4 * uniform(random.next());
  BleuStats stats;
  stats.hypothesis_length = length;
  stats.reference_length = length + static_cast<int64_t>(random.below(5)) - 1;
  double share = 1;
  for (int64_t n = 1; n <= 4; ++n) {
    share *= quality;
    int64_t right = 0;
    for (int64_t i = 0; i < length - n + 1; ++i) {
      right += uniform(random.next()) < share ? 1 : 0;
    }
    stats.totals.push_back(length - n + 1);
    stats.matches.push_back(right);
  }
  return stats;
}

std::vector<BleuStats> sentences(size_t count, uint32_t index) {
  PhiloxStream random(7, 1, index);
  std::vector<BleuStats> all;
  for (size_t i = 0; i < count; ++i) {
    all.push_back(sentence(random));
  }
  return all;
}

// 95 % of 300 corpora are 285; 3.5 standard errors around that are 272 to 298.
TEST(Resampling, CoversTheTruth) {
  const double truth = score(sum(sentences(200000, 1000000)), BleuOptions{}).score;
  int covered = 0, below = 0;
  for (uint32_t corpus = 0; corpus < 300; ++corpus) {
    const Interval found = interval(sentences(150, corpus), BleuOptions{});
    covered += found.low <= truth && truth <= found.high ? 1 : 0;
    below += found.high < truth ? 1 : 0;
  }
  EXPECT_GE(covered, 272);
  EXPECT_LE(covered, 298);
  EXPECT_GE(below, 1) << "misses lie on both sides";
  EXPECT_LT(below, 300 - covered);
}

TEST(Resampling, NarrowsWithTheRootOfTheLines) {
  const Interval few = interval(sentences(200, 1), BleuOptions{}), many = interval(sentences(3200, 2), BleuOptions{});
  EXPECT_NEAR((few.high - few.low) / (many.high - many.low), 4, 0.8);
}

TEST(Resampling, IsTheSameEveryTimeAndContainsTheScore) {
  for (uint32_t corpus = 0; corpus < 20; ++corpus) {
    const auto lines = sentences(1 + corpus * corpus, corpus);
    const Interval first = interval(lines, BleuOptions{}), second = interval(lines, BleuOptions{});
    EXPECT_EQ(first.low, second.low);
    EXPECT_EQ(first.high, second.high);
    const double bleu = score(sum(lines), BleuOptions{}).score;
    EXPECT_LE(first.low, bleu);
    EXPECT_GE(first.high, bleu);
    EXPECT_GE(first.low, 0);
    EXPECT_LE(first.high, 100.001);
  }
}

TEST(Resampling, CutsOffOneFortiethOnEachSide) {
  std::vector<double> scores;
  for (int i = 0; i < 1000; ++i) {
    scores.push_back((i * 7) % 1000);
  }
  const Interval found = interval_of(scores, 500);
  EXPECT_EQ(found.low, 25);
  EXPECT_EQ(found.high, 974);
  EXPECT_DOUBLE_EQ(found.mean, 499.5);
  EXPECT_EQ(found.half_width, 474.5);
  EXPECT_EQ(interval_of(scores, 3).low, 3);
  EXPECT_EQ(interval_of(scores, 990).high, 990);
  EXPECT_EQ(interval_of({5}, 5).high, 5);
}

TEST(Resampling, OneLineAndEmptyLines) {
  const std::vector<std::string> one = {"a b c d e f"};
  const BleuScore bleu = corpus_score_with_interval(one, {{"a b c x e f"}}, BleuOptions{});
  ASSERT_TRUE(bleu.interval.has_value());
  EXPECT_EQ(bleu.score, corpus_score(one, {{"a b c x e f"}}, BleuOptions{}).score);
  EXPECT_EQ(bleu.interval->low, bleu.score);
  EXPECT_EQ(bleu.interval->high, bleu.score);
  EXPECT_EQ(bleu.text().substr(0, 30), "BLEU = 37.99 (μ = 37.99 ± 0.");

  const std::vector<std::string> empty = {"", "", ""};
  const Interval nothing = *corpus_score_with_interval(empty, {{"a b c d", "", "e"}}, BleuOptions{}).interval;
  EXPECT_EQ(nothing.low, 0);
  EXPECT_EQ(nothing.high, 0);
  const std::vector<std::string> mixed = {"a b c d e", "", "x"};
  const References references = {{"a b c d e", "", "y z"}};
  for (const Interval& found : {interval(statistics(mixed, references, BleuOptions{}), BleuOptions{}),
                                interval(statistics(mixed, references, ChrfOptions{}), ChrfOptions{}),
                                interval(statistics(mixed, references, TerOptions{}), TerOptions{})}) {
    EXPECT_GE(found.low, 0);
    EXPECT_GE(found.mean, found.low);
    EXPECT_GE(found.high, found.mean);
    EXPECT_LT(found.high, 1000);
  }
}

}  // namespace
}  // namespace tandem::text
