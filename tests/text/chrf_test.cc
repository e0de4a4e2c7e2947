#include "text/chrf.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tandem::text {
namespace {

MetricScore corpus_chrf(Lines hypotheses, const References& references, const ChrfOptions& options = {}) {
  return corpus_score(hypotheses, references, options);
}

const std::vector<std::string> kHypotheses = {"The cat sat on the mat.", "It costs 3.5% of $1,000-2 (approx.)",
                                              "Hallo &amp; Welt!"};
const References kReference = {{"The cat sat on a mat.", "It costs 3.5% of $1,000-2, approximately.", "Hallo & Welt!"}};

// Expected numbers are the sacreBLEU package's, version 2.6.0.
TEST(Chrf, EqualsThePackage) {
  EXPECT_NEAR(corpus_chrf(kHypotheses, kReference).score, 67.94250058697942, 1e-12);
  EXPECT_NEAR(corpus_chrf(kHypotheses, kReference, {.word_order = 2}).score, 66.16616160981263, 1e-12);
  EXPECT_NEAR(corpus_chrf(kHypotheses, kReference, {.lowercase = true, .whitespace = true}).score, 72.2955957086392,
              1e-12);
  EXPECT_NEAR(corpus_chrf(kHypotheses, kReference, {.char_order = 3, .beta = 1}).score, 78.65914786967419, 1e-12);
  EXPECT_NEAR(corpus_chrf(kHypotheses, kReference, {.eps_smoothing = true}).score, 67.94250058697942, 1e-12);
}

TEST(Chrf, NamesAndSignature) {
  EXPECT_EQ(corpus_chrf(kHypotheses, kReference).text(), "chrF2 = 67.94");
  EXPECT_EQ(corpus_chrf(kHypotheses, kReference, {.word_order = 2}).text(3), "chrF2++ = 66.166");
  EXPECT_EQ(signature(ChrfOptions{}, 1),
            std::string("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:") + kDefinition);
}

TEST(Chrf, TakesTheBestReferenceOfALine) {
  const std::vector<std::string> hypotheses = {"abcd", ""};
  const References references = {{"xbcd", "a"}, {"abxd", "b"}};
  EXPECT_NEAR(corpus_chrf(hypotheses, references).score, 44.868963486454646, 1e-12);
  const auto lines = statistics(hypotheses, references, ChrfOptions{});
  EXPECT_EQ(lines[0].orders[2].matches, 1) << "bcd of the first reference";
  EXPECT_EQ(lines[0].orders[4].hypothesis, 0);
}

TEST(Chrf, WordsLoseOnePunctuationMark) {
  const std::vector<std::string> hypothesis = {"(hi) 'a -"};
  const auto stats = statistics(hypothesis, {{"(hi ) ' a -"}}, ChrfOptions{.char_order = 0, .word_order = 1});
  EXPECT_EQ(stats[0].orders[0].hypothesis, 5);
  EXPECT_EQ(stats[0].orders[0].matches, 4) << "the reference's own (hi becomes ( and hi";
}

TEST(Chrf, EmptyLinesAndWrongArguments) {
  const std::vector<std::string> empty = {""};
  EXPECT_EQ(corpus_chrf(empty, {{""}}).score, 0);
  EXPECT_EQ(corpus_chrf(empty, {{"a"}}).score, 0);
  EXPECT_THROW(corpus_chrf(empty, {{"a"}}, {.char_order = 0}), Error);
  EXPECT_THROW(corpus_chrf(empty, {{"a"}}, {.beta = -1}), Error);
  EXPECT_THROW(corpus_chrf(empty, {{"a", "b"}}), Error);
}

}  // namespace
}  // namespace tandem::text
