#include "text/bleu.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tandem::text {
namespace {

BleuScore corpus_bleu(Lines hypotheses, const References& references, const BleuOptions& options = {}) {
  return corpus_score(hypotheses, references, options);
}

const std::vector<std::string> kHypotheses = {"The cat sat on the mat.", "It costs 3.5% of $1,000-2 (approx.)",
                                              "Hallo &amp; Welt!"};
const References kReference = {{"The cat sat on a mat.", "It costs 3.5% of $1,000-2, approximately.", "Hallo & Welt!"}};

// Expected numbers are the sacreBLEU package's, version 2.6.0.
TEST(Bleu, EqualsThePackage) {
  const BleuScore bleu = corpus_bleu(kHypotheses, kReference);
  EXPECT_NEAR(bleu.score, 66.36703361576491, 1e-12);
  EXPECT_EQ(bleu.hypothesis_length, 24);
  EXPECT_EQ(bleu.reference_length, 23);
  EXPECT_EQ(bleu.text(), "BLEU = 66.37 83.3/71.4/61.1/53.3 (BP = 1.000 ratio = 1.043 hyp_len = 24 ref_len = 23)");
  EXPECT_EQ(signature(BleuOptions{}, 1),
            std::string("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:") + kDefinition);

  const std::vector<std::string> hypothesis = {"a b c d e f"};
  EXPECT_NEAR(corpus_bleu(hypothesis, {{"a b c x e f"}}).score, 37.99178428257963, 1e-12);
}

TEST(Bleu, StatisticsOfLinesSumToTheCorpus) {
  const auto lines = statistics(kHypotheses, kReference, BleuOptions{});
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1].hypothesis_length, 13);
  const BleuStats all = sum(lines);
  EXPECT_EQ(all.matches, (std::vector<int64_t>{20, 15, 11, 8}));
  EXPECT_EQ(all.totals, (std::vector<int64_t>{24, 21, 18, 15}));
}

TEST(Bleu, ClipsToTheBestReferenceAndTakesTheClosestLength) {
  const std::vector<std::string> hypothesis = {"the the the cat"};
  const auto stats = statistics(hypothesis, {{"the cat x"}, {"the the dog y z"}}, BleuOptions{.max_order = 2});
  EXPECT_EQ(stats[0].matches, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(stats[0].reference_length, 3) << "3 and 5 are equally close to 4: the shorter";
}

TEST(Bleu, SmoothingAndEffectiveOrder) {
  const std::vector<std::string> hypothesis = {"a b x"};
  const References reference = {{"a b c"}};
  const auto bleu = [&](const std::string& smoothing, double value, bool effective) {
    return corpus_bleu(hypothesis, reference,
                       {.smoothing = smoothing, .smooth_value = value, .effective_order = effective})
        .score;
  };
  EXPECT_EQ(bleu("exp", -1, false), 0) << "no 4-gram at all";
  EXPECT_NEAR(bleu("exp", -1, true), 55.03212081491043, 1e-12);
  EXPECT_NEAR(bleu("floor", -1, true), 32.182979486854336, 1e-12);
  EXPECT_NEAR(bleu("floor", 0.5, true), 55.03212081491043, 1e-12);
  EXPECT_NEAR(bleu("add-k", -1, true), 68.65890479690394, 1e-12);
  EXPECT_EQ(bleu("none", -1, true), 0);
  EXPECT_EQ(signature(BleuOptions{.lowercase = true, .smoothing = "floor", .effective_order = true}, 2),
            std::string("nrefs:2|case:lc|eff:yes|tok:13a|smooth:floor[0.10]|version:") + kDefinition);
}

TEST(Bleu, EmptyAndShortTranslations) {
  const std::vector<std::string> empty = {""};
  EXPECT_EQ(corpus_bleu(empty, {{"a b"}}).score, 0);
  EXPECT_EQ(corpus_bleu(empty, {{""}}).score, 0);
  const std::vector<std::string> half = {"a b c d"};
  const BleuScore bleu = corpus_bleu(half, {{"a b c d e f g h"}});
  EXPECT_NEAR(bleu.brevity_penalty, 0.36787944117144233, 1e-15);
  EXPECT_NEAR(bleu.score, 36.787944117144235, 1e-12);
}

TEST(Bleu, WrongArgumentsAreExplained) {
  EXPECT_THROW(corpus_bleu(kHypotheses, {}), Error);
  EXPECT_THROW(corpus_bleu(kHypotheses, {{"one line"}}), Error);
  EXPECT_THROW(corpus_bleu({}, {{}}), Error);
  EXPECT_THROW(corpus_bleu(kHypotheses, kReference, {.tokenizer = "zh"}), Error);
  EXPECT_THROW(corpus_bleu(kHypotheses, kReference, {.smoothing = "x"}), Error);
  EXPECT_THROW(corpus_bleu(kHypotheses, kReference, {.max_order = 0}), Error);
}

}  // namespace
}  // namespace tandem::text
