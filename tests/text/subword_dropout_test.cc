#include "text/subword_dropout.h"

#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include "core/error.h"
#include "text/small_model.h"

namespace tandem::text {
namespace {

using testing::nasty_lines;
using testing::small_model;

std::vector<int32_t> plain(const Subwords& subwords, const std::string& line) {
  std::vector<int32_t> ids;
  subwords.encode(line, ids);
  return ids;
}

std::vector<int32_t> sampled(const SubwordDropout& dropout, const std::string& line, uint32_t index) {
  PhiloxStream random(7, 8, index);
  std::vector<int32_t> ids;
  dropout.encode(line, random, ids);
  return ids;
}

// Words of the parts that small_model() learns from.
std::vector<std::string> ordinary_lines(size_t count) {
  static constexpr const char* kParts[] = {"ha", "us", "er", "ung", "the", "in", "\xC3\xBC", "1", ","};
  PhiloxStream random(3, 4);
  std::vector<std::string> lines(count);
  for (std::string& line : lines) {
    for (int word = 0; word < 8; ++word) {
      line += word == 0 ? "" : " ";
      for (uint64_t part = 0; part < 1 + random.below(4); ++part) {
        line += kParts[random.below(std::size(kParts))];
      }
    }
  }
  return lines;
}

size_t pieces_of(const std::vector<std::string>& lines, const SubwordDropout& dropout) {
  size_t pieces = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    pieces += sampled(dropout, lines[i], static_cast<uint32_t>(i)).size();
  }
  return pieces;
}

TEST(SubwordDropout, RateZeroGivesThePlainPieces) {
  for (const auto& options : {std::unordered_map<std::string, std::string>{},
                              {{"normalization_rule_name", "nfkc_cf"}},
                              {{"byte_fallback", "true"}, {"vocab_size", "400"}}}) {
    const Subwords subwords = Subwords::from_bytes(small_model(options), "model");
    const SubwordDropout dropout(subwords, 0, "model");
    for (const auto& lines : {ordinary_lines(300), nasty_lines(2000, 5)}) {
      for (const std::string& line : lines) {
        ASSERT_EQ(sampled(dropout, line, 0), plain(subwords, line)) << line;
      }
    }
  }
}

TEST(SubwordDropout, AnyRateDecodesToTheSameText) {
  const Subwords subwords =
      Subwords::from_bytes(small_model({{"byte_fallback", "true"}, {"vocab_size", "400"}}), "model");
  for (const double rate : {0.1, 0.5, 0.99}) {
    const SubwordDropout dropout(subwords, rate, "model");
    size_t changed = 0;
    for (const auto& lines : {ordinary_lines(300), nasty_lines(2000, 6)}) {
      for (const std::string& line : lines) {
        const auto ids = sampled(dropout, line, 1), without = plain(subwords, line);
        ASSERT_EQ(subwords.decode(ids), subwords.decode(without)) << line;
        changed += ids != without ? 1 : 0;
      }
    }
    EXPECT_GT(changed, 290U) << "at rate " << rate;  // nearly all of the 300 ordinary lines
  }
}

TEST(SubwordDropout, LeavesOutAsManyMergesAsSentencePiece) {
  sentencepiece::SetRandomGeneratorSeed(1);
  const std::string model = small_model({});
  const Subwords subwords = Subwords::from_bytes(model, "model");
  sentencepiece::SentencePieceProcessor truth;
  ASSERT_TRUE(truth.LoadFromSerializedProto(model).ok());
  const std::vector<std::string> lines = ordinary_lines(3000);
  for (const float rate : {0.05F, 0.1F, 0.4F}) {
    size_t expected = 0;
    for (const std::string& line : lines) {
      expected += truth.SampleEncodeAsIds(line, -1, rate).size();
    }
    const size_t without = pieces_of(lines, SubwordDropout(subwords, 0, "model"));
    const size_t pieces = pieces_of(lines, SubwordDropout(subwords, rate, "model"));
    EXPECT_GT(pieces, without + without / 50);
    EXPECT_NEAR(static_cast<double>(pieces - without) / static_cast<double>(expected - without), 1, 0.05)
        << "rate " << rate;
  }
}

TEST(SubwordDropout, TheSameNumbersGiveTheSamePieces) {
  const Subwords subwords = Subwords::from_bytes(small_model({}), "model");
  const SubwordDropout dropout(subwords, 0.3, "model");
  const std::string line = "haustheung inerung theininus";
  EXPECT_EQ(sampled(dropout, line, 1), sampled(dropout, line, 1));
  EXPECT_NE(sampled(dropout, line, 1), sampled(dropout, line, 2));
}

// Languages without spaces have clauses of some hundred bytes as words.
TEST(SubwordDropout, TextWithoutSpacesHasOtherPiecesToo) {
  const Subwords subwords = Subwords::from_bytes(small_model({}), "model");
  const SubwordDropout dropout(subwords, 0.1, "model");
  std::string word;
  while (word.size() < 600) {
    word += "haus\xE6\x97\xA5theung";
  }
  const auto ids = sampled(dropout, word, 1);
  EXPECT_NE(ids, plain(subwords, word));
  EXPECT_EQ(subwords.decode(ids), word);
}

TEST(SubwordDropout, LongWordsKeepTheirPieces) {
  const Subwords subwords = Subwords::from_bytes(small_model({}), "model");
  const SubwordDropout dropout(subwords, 0.9, "model");
  std::string word;
  while (word.size() < 100'000) {
    word += "haustheung";
  }
  EXPECT_EQ(sampled(dropout, word, 1), plain(subwords, word));
}

TEST(SubwordDropout, RefusesModelsThatDoNotMerge) {
  const auto refusal = [](const std::unordered_map<std::string, std::string>& options) {
    const Subwords subwords = Subwords::from_bytes(small_model(options), "model");
    try {
      SubwordDropout(subwords, 0.1, "some.model");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal({{"model_type", "unigram"}}),
            "some.model cannot be used with subword dropout, because it is not a BPE model");
  EXPECT_EQ(refusal({{"user_defined_symbols", "haus,xyz"}}),
            "some.model cannot be used with subword dropout, because it has user-defined pieces, which stay whole");
  EXPECT_EQ(refusal({}), "");
}

}  // namespace
}  // namespace tandem::text
