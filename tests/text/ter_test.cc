#include "text/ter.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tandem::text {
namespace {

MetricScore corpus_ter(Lines hypotheses, const References& references, const TerOptions& options = {}) {
  return corpus_score(hypotheses, references, options);
}

const std::vector<std::string> kHypotheses = {"The cat sat on the mat.", "It costs 3.5% of $1,000-2 (approx.)",
                                              "Hallo &amp; Welt!"};
const References kReference = {{"The cat sat on a mat.", "It costs 3.5% of $1,000-2, approximately.", "Hallo & Welt!"}};

// Expected numbers are the sacreBLEU package's, version 2.6.0.
TEST(Ter, EqualsThePackage) {
  EXPECT_NEAR(corpus_ter(kHypotheses, kReference).score, 26.666666666666668, 1e-12);
  EXPECT_NEAR(corpus_ter(kHypotheses, kReference, {.normalized = true}).score, 17.391304347826086, 1e-12);
  EXPECT_NEAR(corpus_ter(kHypotheses, kReference, {.no_punct = true}).score, 20.0, 1e-12);
  EXPECT_EQ(corpus_ter(kHypotheses, kReference).text(1), "TER = 26.7");
  EXPECT_EQ(signature(TerOptions{}, 1),
            std::string("nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:") + kDefinition);
}

int64_t edits(const std::string& hypothesis, const std::string& reference) {
  const std::vector<std::string> line = {hypothesis};
  return statistics(line, {{reference}}, TerOptions{})[0].edits;
}

TEST(Ter, CountsShiftsAndEdits) {
  EXPECT_EQ(edits("a b c", "a b c"), 0);
  EXPECT_EQ(edits("a x c", "a b c"), 1);
  EXPECT_EQ(edits("a b c d e", "d e a b c"), 1) << "one shift";
  EXPECT_EQ(edits("x a b c y d e f", "d e f a b c"), 3) << "a shift and two deletions";
  EXPECT_EQ(edits("", "a b"), 2);
  EXPECT_EQ(edits("a b", ""), 2);
}

TEST(Ter, BestReferenceAndMeanLength) {
  const std::vector<std::string> line = {"a b x"};
  const auto stats = statistics(line, {{"a b c"}, {"a b x d e"}}, TerOptions{});
  EXPECT_EQ(stats[0].edits, 1);
  EXPECT_EQ(stats[0].reference_length, 4.0);
  EXPECT_NEAR(score(stats[0], TerOptions{}).score, 25.0, 1e-12);
}

TEST(Ter, EmptyTexts) {
  const std::vector<std::string> empty = {""}, full = {"a b"};
  EXPECT_EQ(corpus_ter(empty, {{""}}).score, 0);
  EXPECT_EQ(corpus_ter(full, {{""}}).score, 100);
  EXPECT_THROW(corpus_ter(full, {{"a", "b"}}), Error);
}

TEST(Ter, LongLinesTakeLinearMemory) {
  std::vector<uint32_t> hypothesis(200000), reference(300000);  // a full matrix would have 6e10 cells
  for (size_t i = 0; i < reference.size(); ++i) {
    reference[i] = static_cast<uint32_t>(i);
    hypothesis[i % hypothesis.size()] = static_cast<uint32_t>(1000000 + i);
  }
  EXPECT_EQ(translation_edits(hypothesis, reference), 300000) << "no word in common";
}

}  // namespace
}  // namespace tandem::text
