#include "data/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "core/file.h"
#include "core/human.h"
#include "core/philox.h"
#include "data/prepared.h"
#include "data/scratch.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::message_of;

class Prepare : public testing::Scratch {
 protected:
  void SetUp() override {
    Scratch::SetUp();
    write_text("train", 2000, 1);
    write_text("dev", 20, 2);
    config_.source = {at("train.en")};
    config_.target = {at("train.de")};
    config_.out = at("out");
    config_.training.vocab_size = 150;
  }

  // Lines like "12 w34x ..." on both sides; each number names its line, so pairs can be recognised.
  void write_text(const std::string& name, int lines, uint32_t seed) {
    PhiloxStream random(seed, 5);
    std::string source, target;
    for (int line = 0; line < lines; ++line) {
      source += std::to_string(line);
      target += std::to_string(line);
      for (uint64_t left = 1 + random.below(6); left > 0; --left) {
        const std::string word = std::to_string(random.below(90));
        source += " w" + word + "x";
        target += " \xC3\xBC" + word + "z";
      }
      source += "\n";
      target += "\n";
    }
    write_file(at(name + ".en"), source);
    write_file(at(name + ".de"), target);
  }

  // All training pairs as text, "source|target".
  static std::vector<std::string> pairs_of(const Prepared& data) {
    std::vector<std::string> pairs;
    for (int64_t i = 0; i < data.train.size(); ++i) {
      std::vector<int32_t> source, target;
      data.train.append(Side::source, i, source);
      data.train.append(Side::target, i, target);
      pairs.push_back(data.subwords(Side::source).decode(source) + "|" + data.subwords(Side::target).decode(target));
    }
    return pairs;
  }

  std::vector<std::string> expected_pairs() const {
    std::ifstream source(at("train.en")), target(at("train.de"));
    std::vector<std::string> pairs;
    for (std::string s, t; std::getline(source, s) && std::getline(target, t);) {
      pairs.push_back(s + "|" + t);
    }
    return pairs;
  }

  std::map<std::string, std::string> files_of(const fs::path& directory) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(directory)) {
      if (entry.path().filename() != "stats.json") {
        files[entry.path().filename().string()] = read_file(entry.path());
      }
    }
    return files;
  }

  // prepare() fails with this text and leaves nothing.
  void expect_error(const std::string& text) {
    const std::string error = message_of([&] { prepare(config_); });
    EXPECT_TRUE(contains(error, text)) << error;
    EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 0);
    for (const auto& entry : fs::directory_iterator(directory_)) {
      EXPECT_FALSE(contains(entry.path().filename().string(), "out")) << entry.path();
    }
  }

  PrepareConfig config_;
};

TEST_F(Prepare, KeepsEveryPairAndItsOrderWhenAsked) {
  config_.shuffle = false;
  config_.valid_source = at("dev.en");
  config_.valid_target = at("dev.de");
  const PrepareStats stats = prepare(config_);
  const Prepared data = Prepared::open(config_.out);
  EXPECT_EQ(pairs_of(data), expected_pairs());
  EXPECT_EQ(stats.pairs, 2000);
  EXPECT_TRUE(data.joint);
  EXPECT_EQ(data.subwords(Side::target).size(), 150);
  EXPECT_EQ(data.valid.size(), 20U);
  EXPECT_EQ(data.test.size(), 0U);
  EXPECT_EQ(stats[Side::source].tokens, data.train.tokens(Side::source));
  EXPECT_EQ(stats[Side::source].raw_bytes, fs::file_size(at("train.en")));
  EXPECT_EQ(stats[Side::target].cleaned_bytes, fs::file_size(at("train.de")));
  EXPECT_EQ(stats[Side::source].unknown, 0);
  EXPECT_FALSE(fs::exists(config_.out / "cleaned.scratch"));
}

TEST_F(Prepare, ShufflesBySeed) {
  prepare(config_);
  const auto first = pairs_of(Prepared::open(config_.out));
  auto sorted = first, expected = expected_pairs();
  EXPECT_NE(first, expected);
  std::sort(sorted.begin(), sorted.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(sorted, expected);
  config_.seed = 2;
  config_.out = at("other");
  prepare(config_);
  EXPECT_NE(pairs_of(Prepared::open(config_.out)), first);
}

TEST_F(Prepare, SameBytesAtAnyNumberOfThreads) {
  config_.separate = true;
  config_.valid_size = 17;
  config_.threads = 1;
  prepare(config_);
  const auto first = files_of(config_.out);
  EXPECT_EQ(first.size(), 6U);
  const std::string fingerprint = Prepared::open(config_.out).fingerprint;
  for (const int threads : {2, 5}) {
    config_.threads = threads;
    config_.out = at("out" + std::to_string(threads));
    prepare(config_);
    EXPECT_EQ(files_of(config_.out), first);
    EXPECT_EQ(Prepared::open(config_.out).fingerprint, fingerprint);
  }
  config_.seed = 9;
  config_.out = at("changed");
  prepare(config_);
  EXPECT_NE(Prepared::open(config_.out).fingerprint, fingerprint);
}

TEST_F(Prepare, SeparateVocabularies) {
  config_.separate = true;
  prepare(config_);
  const Prepared data = Prepared::open(config_.out);
  EXPECT_FALSE(data.joint);
  EXPECT_NE(data.subwords(Side::source).bytes(), data.subwords(Side::target).bytes());
  auto pairs = pairs_of(data), expected = expected_pairs();
  std::sort(pairs.begin(), pairs.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(pairs, expected);
}

TEST_F(Prepare, ExistingTokenizer) {
  prepare(config_);
  config_.tokenizer = at("out/joint.model");
  config_.out = at("again");
  const PrepareStats stats = prepare(config_);
  EXPECT_EQ(stats.tokenizer_words, 0);
  EXPECT_EQ(files_of(config_.out), files_of(at("out")));
  write_file(at("broken.model"), read_file(config_.tokenizer).substr(0, 5000));
  config_.tokenizer = at("broken.model");
  config_.out = at("out3");
  EXPECT_TRUE(contains(message_of([&] { prepare(config_); }), "broken.model is not a SentencePiece model"));
}

TEST_F(Prepare, CopiesInOtherPieces) {
  config_.shuffle = false;
  config_.threads = 1;
  const PrepareStats plain = prepare(config_);
  config_.subword_dropout = 0.2;
  config_.copies = 3;
  config_.out = at("copies");
  const PrepareStats stats = prepare(config_);
  const Prepared data = Prepared::open(config_.out);
  std::vector<std::string> expected;
  for (int copy = 0; copy < 3; ++copy) {
    const auto once = expected_pairs();
    expected.insert(expected.end(), once.begin(), once.end());
  }
  EXPECT_EQ(pairs_of(data), expected);
  EXPECT_EQ(stats.pairs, 6000);
  for (const Side side : {Side::source, Side::target}) {
    EXPECT_EQ(stats[side].words, plain[side].words) << "the text counts once";
    EXPECT_EQ(stats[side].cleaned_bytes, plain[side].cleaned_bytes);
    EXPECT_EQ(stats[side].tokens, data.train.tokens(side));
    EXPECT_GT(stats[side].tokens, 3 * plain[side].tokens);
  }
  int64_t differ = 0;
  for (int64_t i = 0; i < 2000; ++i) {
    std::vector<int32_t> first, second;
    data.train.append(Side::source, i, first);
    data.train.append(Side::source, 2000 + i, second);
    differ += first != second ? 1 : 0;
  }
  EXPECT_GT(differ, 1000);
  const Prepared without = Prepared::open(at("out"));
  for (int64_t i = 0; i < 6000; ++i) {
    std::vector<int32_t> expected_pieces;
    without.train.append(Side::target, i % 2000, expected_pieces);
    ASSERT_EQ(data.plain_tokens(Side::target, i), expected_pieces);
    ASSERT_EQ(without.plain_tokens(Side::target, i % 2000), expected_pieces);
  }
  const auto files = files_of(config_.out);
  config_.threads = 5;
  config_.out = at("threads");
  prepare(config_);
  EXPECT_EQ(files_of(config_.out), files);
  config_.subword_dropout = 0;
  config_.out = at("out3");
  EXPECT_TRUE(contains(message_of([&] { prepare(config_); }), "--copies are for --subword-dropout"));
  EXPECT_FALSE(fs::exists(config_.out));
}

TEST_F(Prepare, ImpossibleRatesAndCopiesAreRefused) {
  config_.copies = 2;
  for (const double rate : {-0.1, 1.0, std::nan("")}) {
    config_.subword_dropout = rate;
    EXPECT_TRUE(contains(message_of([&] { prepare(config_); }), "--subword-dropout must be 0 or more and below 1"));
  }
  config_.subword_dropout = 0.1;
  for (const int64_t copies : {0, -1, 1001}) {
    config_.copies = copies;
    EXPECT_TRUE(contains(message_of([&] { prepare(config_); }), "--copies must be 1 to 1000"));
  }
  EXPECT_FALSE(fs::exists(config_.out));
}

TEST_F(Prepare, CopiesOfSeparateVocabulariesCountDroppedPairsOnce) {
  write_file(at("more.en"), read_file(at("train.en")) + "w1x\n\xE2\x80\x8B\n");
  write_file(at("more.de"), read_file(at("train.de")) +
                                "\n\xC3\xBC"
                                "1z\n");
  config_.source = {at("more.en")};
  config_.target = {at("more.de")};
  config_.separate = true;
  config_.valid_size = 17;
  config_.subword_dropout = 0.3;
  config_.copies = 4;
  const PrepareStats stats = prepare(config_);
  const Prepared data = Prepared::open(config_.out);
  EXPECT_EQ(data.train.size(), stats.pairs);
  EXPECT_EQ(stats.pairs % 4, 0);
  EXPECT_EQ(std::accumulate(stats.dropped.begin(), stats.dropped.end(), stats.pairs / 4), 2002);
  const auto json = nlohmann::json::parse(read_file(config_.out / "stats.json"));
  EXPECT_EQ(json["copies"], 4);
  EXPECT_EQ(json["subword_dropout"], 0.3);
  EXPECT_EQ(json["source"]["cleaned"]["lines"], stats.pairs / 4);
  EXPECT_EQ(json["source"]["encoded"]["lines"], stats.pairs);
  EXPECT_TRUE(
      contains(to_table(stats), fmt::format("({}, 4 times each, subword dropout 0.3)", grouped(stats.pairs / 4))));
  auto pairs = pairs_of(data);
  std::sort(pairs.begin(), pairs.end());
  for (size_t i = 0; i < pairs.size(); i += 4) {
    ASSERT_EQ(pairs[i], pairs[i + 3]) << "every pair as often as the others";
  }
}

TEST_F(Prepare, CountsEveryDroppedPairOnce) {
  std::string source = read_file(at("train.en")), target = read_file(at("train.de"));
  const auto add = [&](const std::string& s, const std::string& t) {
    source += s + "\n";
    target += t + "\n";
  };
  const auto words = [](int count) {
    std::string line;
    for (int i = 0; i < count; ++i) {
      line += "w ";
    }
    return line;
  };
  add("", "x");
  add("x", " \t ");
  add("\xE2\x80\x8B", "x");  // nothing is left after normalisation
  add("\xFF", "x");
  add(words(81), words(81));
  add(words(10'000), words(3));
  add(words(10), "x");
  add(std::string(2 << 20, 'y'), "x");
  add("0 twin", "0 twin");
  add("0\ttwin", " 0 twin ");
  write_file(at("train.en"), source);
  write_file(at("train.de"), target);
  config_.deduplicate = true;
  const PrepareStats stats = prepare(config_);
  const auto dropped = [&](text::DropReason reason) { return stats.dropped[static_cast<size_t>(reason)]; };
  EXPECT_EQ(dropped(text::DropReason::empty), 3);
  EXPECT_EQ(dropped(text::DropReason::invalid_utf8), 1);
  EXPECT_EQ(dropped(text::DropReason::too_long), 2);
  EXPECT_EQ(dropped(text::DropReason::ratio), 1);
  EXPECT_EQ(dropped(text::DropReason::oversized), 1);
  EXPECT_EQ(dropped(text::DropReason::duplicate), 1);
  EXPECT_EQ(stats.pairs, 2001);
  EXPECT_EQ(stats.raw_pairs, 2010);
  const auto json = nlohmann::json::parse(read_file(config_.out / "stats.json"));
  EXPECT_EQ(json["pairs"]["dropped"]["empty"], 3);
  EXPECT_EQ(json["source"]["raw"]["bytes"], source.size());
  EXPECT_TRUE(contains(to_table(stats), "3 empty, 2 too many words, 1 length ratio, 1 duplicate")) << to_table(stats);
}

TEST_F(Prepare, ValidationPairsDoNotRemainInTraining) {
  write_file(at("train.en"), read_file(at("train.en")) + read_file(at("train.en")));  // every pair twice
  write_file(at("train.de"), read_file(at("train.de")) + read_file(at("train.de")));
  config_.valid_size = 50;
  const PrepareStats stats = prepare(config_);
  const Prepared data = Prepared::open(config_.out);
  ASSERT_EQ(data.valid.size(), 50U);
  std::set<std::string> valid;
  for (size_t i = 0; i < 50; ++i) {
    valid.insert(data.valid.source[i] + "|" + data.valid.target[i]);
  }
  for (const std::string& pair : pairs_of(data)) {
    EXPECT_FALSE(valid.contains(pair)) << pair;
  }
  EXPECT_EQ(stats.pairs + stats.dropped[static_cast<size_t>(text::DropReason::held_out)], 4000);
  EXPECT_LT(stats.pairs, 3950) << "the twins of validation pairs must go too";
  config_.valid_size = 4000;
  config_.out = at("out2");
  EXPECT_TRUE(contains(message_of([&] { prepare(config_); }), "--valid-size 4000 leaves no training pairs"));
}

TEST_F(Prepare, SeveralFilesAndTwoColumns) {
  config_.source = {at("train.en"), at("dev.en")};
  config_.target = {at("train.de"), at("dev.de")};
  config_.shuffle = false;
  prepare(config_);
  auto files = files_of(config_.out);
  std::string columns;
  for (const std::string& pair : pairs_of(Prepared::open(config_.out))) {
    columns += pair + "\n";
  }
  std::replace(columns.begin(), columns.end(), '|', '\t');
  write_file(at("both.tsv"), columns);
  config_.source = config_.target = {};
  config_.tsv = {at("both.tsv")};
  config_.out = at("columns");
  const PrepareStats stats = prepare(config_);
  EXPECT_EQ(stats.raw_pairs, 2020);
  EXPECT_EQ(files_of(config_.out), files);
  write_file(at("both.tsv"), "a\tb\nc\td\te\n");
  config_.out = at("out3");
  EXPECT_TRUE(
      contains(message_of([&] { prepare(config_); }), "line 2 of " + at("both.tsv") + " has 3 columns instead of 2"));
}

TEST_F(Prepare, RawTextOfValidationStaysRaw) {
  write_file(at("v.en"), "  two  spaces\t\n\nthird\r\n");
  write_file(at("v.de"), "a\nb\nc");
  config_.test_source = at("v.en");
  config_.test_target = at("v.de");
  prepare(config_);
  const Prepared data = Prepared::open(config_.out);
  EXPECT_EQ(data.test.source, (std::vector<std::string>{"  two  spaces\t", "", "third"}));
  EXPECT_EQ(data.test.target, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(data.valid.size(), 0U);
}

TEST_F(Prepare, UnequalLineCountsAreBothNamed) {
  write_file(at("train.de"), read_file(at("train.de")) + "one more\n");
  expect_error(at("train.en") + " has 2000 lines but " + at("train.de") + " has 2001");
}

TEST_F(Prepare, BadFiles) {
  config_.source = {at("none.en")};
  expect_error("cannot read " + at("none.en"));
  config_.source = {directory_.string()};
  expect_error("is a directory");
  write_file(at("empty.en"), "");
  write_file(at("empty.de"), "");
  config_.source = {at("empty.en")};
  config_.target = {at("empty.de")};
  expect_error(at("empty.en") + " is empty");
  write_file(at("binary.en"), std::string("\x7F"
                                          "ELF\0\0\0\n",
                                          8));
  config_.source = {at("binary.en")};
  expect_error("is not a UTF-8 text file: line 1 has a zero byte");
  write_file(at("latin.en"), "gr\xFC\xDF\n");
  write_file(at("one.de"), "x\n");
  config_.source = {at("latin.en")};
  config_.target = {at("one.de")};
  expect_error("no pair is left of 1 after cleaning: 1 invalid UTF-8");
}

TEST_F(Prepare, BadSettingsAreAllListed) {
  config_.tsv = {"x"};
  config_.training.vocab_size = 3;
  config_.cleaning.max_words = -1;
  config_.valid_source = "y";
  const std::string error = message_of([&] { prepare(config_); });
  for (const char* part : {"either as --source", "--vocab-size must be", "--max-words -1", "--valid-target belong"}) {
    EXPECT_TRUE(contains(error, part)) << error;
  }
}

TEST_F(Prepare, TextSmallerThanTheVocabulary) {
  config_.training.vocab_size = 32768;
  const std::string error = message_of([&] { prepare(config_); });
  ASSERT_TRUE(contains(error, "too small for a vocabulary of 32768 pieces: at most ")) << error;
  const size_t at_most = error.find("at most ") + 8;
  config_.training.vocab_size = std::stoll(error.substr(at_most));
  EXPECT_EQ(prepare(config_)[Side::source].vocabulary, config_.training.vocab_size) << "the size named is possible";
}

TEST_F(Prepare, VocabularySmallerThanTheCharacters) {
  config_.training.vocab_size = 10;
  expect_error("10 pieces");
}

TEST_F(Prepare, ReplacesOnlyAPreparedDirectoryAndOnlyWhenForced) {
  fs::create_directory(config_.out);
  write_file(at("out/precious.txt"), "x");
  EXPECT_TRUE(contains(message_of([&] { prepare(config_); }), "is not a prepared directory"));
  config_.force = true;
  EXPECT_TRUE(contains(message_of([&] { prepare(config_); }), "is not a prepared directory"));
  EXPECT_TRUE(fs::exists(at("out/precious.txt")));
  fs::remove(at("out/precious.txt"));
  prepare(config_);
  config_.force = false;
  EXPECT_TRUE(contains(message_of([&] { prepare(config_); }), "exists already"));
  config_.force = true;
  config_.seed = 5;
  const std::string before = Prepared::open(config_.out).fingerprint;
  prepare(config_);
  EXPECT_NE(Prepared::open(config_.out).fingerprint, before);
}

}  // namespace
}  // namespace tandem::data
