// The search alone, on hand-made distributions: against exhaustive enumeration, and its rules one by one.
#include "decode/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/error.h"
#include "core/philox.h"
#include "text/subwords.h"

namespace tandem::decode {
namespace {

using Ids = std::vector<int32_t>;

// Log-probabilities of all pieces after a beginning of sentence `sentence`.
using Distribution = std::function<std::vector<float>(int32_t sentence, const Ids& beginning)>;

class TableScorer : public StepScorer {
 public:
  TableScorer(int64_t vocabulary, Distribution distribution)
      : vocabulary_(vocabulary), distribution_(std::move(distribution)) {}

  int64_t vocabulary() const override { return vocabulary_; }

  void step(std::span<const SearchRow> rows, int64_t k, std::vector<float>& values,
            std::vector<int32_t>& ids) override {
    std::vector<Ids> beginnings;
    values.clear();
    ids.clear();
    for (const SearchRow& row : rows) {
      Ids beginning = row.parent < 0 ? Ids{} : beginnings_[static_cast<size_t>(row.parent)];
      if (row.parent >= 0) {
        beginning.push_back(row.token);
      }
      const std::vector<float> all = distribution_(row.sentence, beginning);
      Ids order(all.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return all[static_cast<size_t>(a)] > all[static_cast<size_t>(b)]; });
      for (int64_t i = 0; i < k; ++i) {
        ids.push_back(order[static_cast<size_t>(i)]);
        values.push_back(all[static_cast<size_t>(ids.back())]);
      }
      beginnings.push_back(std::move(beginning));
    }
    beginnings_ = std::move(beginnings);
    rows_seen_.push_back(rows.size());
  }

  std::vector<size_t> rows_seen_;  // rows of each step

 private:
  int64_t vocabulary_;
  Distribution distribution_;
  std::vector<Ids> beginnings_;
};

std::vector<float> log_of(std::vector<float> probabilities) {
  for (float& p : probabilities) {
    p = std::log(p);
  }
  return probabilities;
}

// A random distribution over `vocabulary` pieces that depends on the whole beginning.
Distribution random_distribution(int64_t vocabulary, uint64_t seed, float spread = 3) {
  return [=](int32_t sentence, const Ids& beginning) {
    uint64_t key = seed * 1000003 + static_cast<uint64_t>(sentence);
    for (const int32_t id : beginning) {
      key = key * 6364136223846793005ULL + static_cast<uint64_t>(id) + 1442695040888963407ULL;
    }
    PhiloxStream random(key, 1);
    std::vector<float> logits(static_cast<size_t>(vocabulary));
    double sum = 0;
    for (float& logit : logits) {
      logit = spread * uniform(random.next());
      sum += std::exp(double{logit});
    }
    for (float& logit : logits) {
      logit -= static_cast<float>(std::log(sum));
    }
    return logits;
  };
}

// Every hypothesis that ends within `limit` pieces, best first.
void enumerate(const Distribution& distribution, int32_t sentence, int64_t limit, double alpha, const Ids& beginning,
               double log_probability, std::vector<Hypothesis>& found) {
  const std::vector<float> next = distribution(sentence, beginning);
  for (size_t id = 0; id < next.size(); ++id) {
    const double total = log_probability + double{next[id]};
    const auto length = static_cast<int64_t>(beginning.size()) + 1;
    if (id == static_cast<size_t>(text::kEos)) {
      found.push_back({beginning, total, total / std::pow((5.0 + static_cast<double>(length)) / 6.0, alpha)});
    } else if (id != static_cast<size_t>(text::kPad) && id != static_cast<size_t>(text::kBos) && length < limit) {
      Ids longer = beginning;
      longer.push_back(static_cast<int32_t>(id));
      enumerate(distribution, sentence, limit, alpha, longer, total, found);
    }
  }
}

std::vector<Hypothesis> exhaustive(const Distribution& distribution, int32_t sentence, int64_t limit, double alpha) {
  std::vector<Hypothesis> found;
  enumerate(distribution, sentence, limit, alpha, {}, 0, found);
  std::stable_sort(found.begin(), found.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  return found;
}

TEST(BeamSearch, WideBeamFindsWhatExhaustiveSearchFinds) {
  // Pieces 3, 4, 5 and the end: at most 3^5 hypotheses are alive at once, so a beam of 243 drops none.
  const std::vector<int64_t> limits = {5, 3, 1, 4};
  for (const double alpha : {0.0, 0.6, 1.0, 2.5}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const Distribution distribution = random_distribution(6, seed);
      TableScorer scorer(6, distribution);
      const auto results = beam_search(scorer, limits, {.beam = 243, .alpha = alpha, .n_best = 100});
      for (size_t s = 0; s < limits.size(); ++s) {
        const auto expected = exhaustive(distribution, static_cast<int32_t>(s), limits[s], alpha);
        const size_t finished = std::min<size_t>(100, expected.size());
        ASSERT_GE(results[s].size(), finished);
        for (size_t i = 0; i < finished; ++i) {
          EXPECT_EQ(results[s][i].ids, expected[i].ids) << "alpha " << alpha << " seed " << seed << " place " << i;
          EXPECT_DOUBLE_EQ(results[s][i].score, expected[i].score);
          EXPECT_DOUBLE_EQ(results[s][i].log_probability, expected[i].log_probability);
        }
      }
    }
  }
}

TEST(BeamSearch, StoppingEarlyLosesNothing) {
  // The end is likely, so the search stops long before the limit; the result equals that of a search that is made to
  // go on to the limit by asking for more hypotheses than it needs.
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Distribution base = random_distribution(7, seed, 5);
    const Distribution distribution = [&](int32_t sentence, const Ids& beginning) {
      std::vector<float> values = base(sentence, beginning);
      values[text::kEos] = std::log(0.6F);
      return values;
    };
    const std::vector<int64_t> limits = {30};
    TableScorer early(7, distribution), late(7, distribution);
    const auto best = beam_search(early, limits, {.beam = 4, .alpha = 0.6, .n_best = 1});
    const auto four = beam_search(late, limits, {.beam = 4, .alpha = 0.6, .n_best = 4});
    ASSERT_EQ(best[0].size(), 1U);
    ASSERT_EQ(four[0].size(), 4U);
    EXPECT_EQ(best[0][0].ids, four[0][0].ids);
    EXPECT_EQ(best[0][0].score, four[0][0].score);
    EXPECT_LT(early.rows_seen_.size(), 30U);
    EXPECT_LE(early.rows_seen_.size(), late.rows_seen_.size());
  }
}

TEST(BeamSearch, GreedyTakesTheMostLikelyPieceUntilTheEnd) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Distribution distribution = random_distribution(9, seed);
    TableScorer scorer(9, distribution);
    const std::vector<int64_t> limits = {12};
    const auto result = beam_search(scorer, limits, {.beam = 1});
    Ids expected;
    double total = 0;
    while (expected.size() < 12) {
      std::vector<float> values = distribution(0, expected);
      values[text::kPad] = values[text::kBos] = -INFINITY;
      const auto best = std::max_element(values.begin(), values.end());
      total += double{*best};
      if (best - values.begin() == text::kEos) {
        break;
      }
      expected.push_back(static_cast<int32_t>(best - values.begin()));
    }
    ASSERT_EQ(result[0].size(), 1U);
    EXPECT_EQ(result[0][0].ids, expected);
    EXPECT_DOUBLE_EQ(result[0][0].log_probability, total);
  }
}

// After any beginning: 4 with 0.5 and the end with 0.5, up to four pieces; then only the end.
std::vector<float> coin(const Ids& beginning) {
  return beginning.size() < 4 ? log_of({0, 0.5F, 0, 0, 0.5F}) : log_of({0, 1, 0, 0, 0});
}

TEST(BeamSearch, AlphaPrefersLongerTranslations) {
  const std::vector<int64_t> limits = {10};
  const auto best = [&](double alpha) {
    TableScorer scorer(5, [](int32_t, const Ids& beginning) { return coin(beginning); });
    return beam_search(scorer, limits, {.beam = 3, .alpha = alpha})[0][0];
  };
  EXPECT_EQ(best(0).ids, Ids{});
  EXPECT_DOUBLE_EQ(best(0).score, double{std::log(0.5F)});
  // Log-probabilities fall by log 2 a piece, so no alpha up to 1 makes up for it; 8 does: (5 + 5)^8 against 2^4 times.
  EXPECT_EQ(best(1).ids, Ids{});
  EXPECT_EQ(best(8).ids, (Ids{4, 4, 4, 4}));
  EXPECT_NEAR(best(8).score, 4 * std::log(0.5) / std::pow(10.0 / 6, 8), 1e-7);
}

TEST(BeamSearch, NeverPassesTheLimitAndThenGivesUnfinishedOnes) {
  // The end never comes.
  TableScorer scorer(6, [](int32_t, const Ids&) { return log_of({0, 0, 0, 0.2F, 0.5F, 0.3F}); });
  const std::vector<int64_t> limits = {3, 1, 7};
  const auto results = beam_search(scorer, limits, {.beam = 2, .n_best = 2});
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(results[0][0].ids, (Ids{4, 4, 4}));
  EXPECT_EQ(results[0][1].ids, (Ids{4, 4, 5}));
  EXPECT_EQ(results[1][0].ids, (Ids{4}));
  EXPECT_EQ(results[2][0].ids.size(), 7U);
  EXPECT_EQ(results[2][0].tokens, 7) << "there is no end mark";
  EXPECT_EQ(scorer.rows_seen_.size(), 7U);
  EXPECT_EQ(scorer.rows_seen_, (std::vector<size_t>{3, 4, 4, 2, 2, 2, 2})) << "rows of ended sentences stay";
}

TEST(BeamSearch, TiesGoToTheLowerIdAndTheEarlierHypothesis) {
  TableScorer scorer(8, [](int32_t, const Ids& beginning) {
    return beginning.size() < 2 ? log_of({0, 0, 0, 0.2F, 0.2F, 0.2F, 0.2F, 0.2F}) : log_of({0, 1, 0, 0, 0, 0, 0, 0});
  });
  const std::vector<int64_t> limits = {5};
  const auto results = beam_search(scorer, limits, {.beam = 3, .n_best = 3});
  ASSERT_EQ(results[0].size(), 3U);
  EXPECT_EQ(results[0][0].ids, (Ids{3, 3}));
  EXPECT_EQ(results[0][1].ids, (Ids{3, 4}));
  EXPECT_EQ(results[0][2].ids, (Ids{3, 5}));
  EXPECT_EQ(results[0][2].tokens, 3) << "with the end mark";
}

TEST(BeamSearch, TiesThatRoundingMakesGoToTheLowerIdToo) {
  // 5 is more likely than 4, but not by so much that a sum with -1000 could tell.
  TableScorer scorer(6, [](int32_t, const Ids& beginning) {
    std::vector<float> values(6, -INFINITY);
    values[3] = beginning.empty() ? -1000 : -INFINITY;
    values[4] = beginning.size() == 1 ? -2e-16F : -INFINITY;
    values[5] = beginning.size() == 1 ? -1e-16F : -INFINITY;
    return values;
  });
  const std::vector<int64_t> limits = {2};
  EXPECT_EQ(beam_search(scorer, limits, {.beam = 1})[0][0].ids, (Ids{3, 4}));
  for (const int beam : {2, 3}) {
    const auto results = beam_search(scorer, limits, {.beam = beam, .n_best = 2});
    ASSERT_EQ(results[0].size(), 2U);
    EXPECT_EQ(results[0][0].ids, (Ids{3, 4}));
    EXPECT_EQ(results[0][1].ids, (Ids{3, 5}));
    EXPECT_EQ(results[0][0].log_probability, -1000);
  }
}

TEST(BeamSearch, EveryHypothesisHasTheProbabilityOfItsOwnPieces) {
  // Hypotheses share beginnings, end at different lengths or not at all, and sentences leave the search one by one.
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Distribution distribution = random_distribution(9, seed);
    TableScorer scorer(9, distribution);
    std::vector<int64_t> limits;
    for (int64_t i = 0; i < 30; ++i) {
      limits.push_back(1 + (i * 7) % 19);
    }
    const auto results = beam_search(scorer, limits, {.beam = 6, .n_best = 6});
    for (size_t s = 0; s < limits.size(); ++s) {
      ASSERT_FALSE(results[s].empty());
      for (const Hypothesis& hypothesis : results[s]) {
        Ids beginning;
        double total = 0;
        for (const int32_t id : hypothesis.ids) {
          total += double{distribution(static_cast<int32_t>(s), beginning)[static_cast<size_t>(id)]};
          beginning.push_back(id);
        }
        const double with_end = total + double{distribution(static_cast<int32_t>(s), beginning)[text::kEos]};
        const bool unfinished = static_cast<int64_t>(beginning.size()) == limits[s];
        EXPECT_EQ(hypothesis.log_probability, unfinished ? total : with_end) << "sentence " << s << " seed " << seed;
      }
    }
  }
}

TEST(BeamSearch, NBestIsOrderedAndWithoutRepetition) {
  const Distribution distribution = random_distribution(12, 5);
  TableScorer scorer(12, distribution);
  const std::vector<int64_t> limits = {20};
  const auto results = beam_search(scorer, limits, {.beam = 8, .n_best = 8});
  ASSERT_EQ(results[0].size(), 8U);
  for (size_t i = 1; i < 8; ++i) {
    EXPECT_GE(results[0][i - 1].score, results[0][i].score);
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(results[0][i].ids, results[0][j].ids);
    }
  }
}

TEST(BeamSearch, SentencesDoNotInfluenceEachOther) {
  const Distribution distribution = random_distribution(10, 11);
  const SearchOptions config{.beam = 4, .n_best = 2};
  std::vector<int64_t> limits;
  for (int64_t i = 0; i < 40; ++i) {
    limits.push_back(1 + i % 13);
  }
  TableScorer together(10, distribution);
  const auto all = beam_search(together, limits, config);
  for (size_t s = 0; s < limits.size(); ++s) {
    TableScorer alone(10,
                      [&](int32_t, const Ids& beginning) { return distribution(static_cast<int32_t>(s), beginning); });
    const std::vector<int64_t> limit = {limits[s]};
    const auto one = beam_search(alone, limit, config);
    ASSERT_EQ(one[0].size(), all[s].size());
    for (size_t i = 0; i < one[0].size(); ++i) {
      EXPECT_EQ(one[0][i].ids, all[s][i].ids);
      EXPECT_EQ(one[0][i].score, all[s][i].score);
    }
  }
}

TEST(BeamSearch, RefusesImpossibleSettingsAndNumbers) {
  const std::vector<int64_t> limits = {4};
  TableScorer scorer(6, random_distribution(6, 1));
  EXPECT_THROW(beam_search(scorer, limits, {.beam = 0}), Error);
  EXPECT_THROW(beam_search(scorer, limits, {.beam = 2, .n_best = 3}), Error);
  EXPECT_THROW(beam_search(scorer, limits, {.beam = 2, .alpha = -1}), Error);
  EXPECT_THROW(beam_search(scorer, limits, {.beam = 2, .alpha = NAN}), Error);
  EXPECT_THROW(beam_search(scorer, limits, {.beam = 2, .max_extra = -1}), Error);
  TableScorer broken(6, [](int32_t, const Ids&) { return std::vector<float>(6, NAN); });
  EXPECT_THROW(beam_search(broken, limits, {}), Error);
  EXPECT_TRUE(beam_search(scorer, {}, {}).empty());
}

}  // namespace
}  // namespace tandem::decode
