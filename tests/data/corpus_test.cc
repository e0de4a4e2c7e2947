#include "data/corpus.h"

#include <cstring>
#include <fstream>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "core/philox.h"
#include "data/scratch.h"

namespace tandem::data {
namespace {

using testing::contains;
using testing::message_of;
using Ids = std::vector<int32_t>;

class CorpusFile : public testing::Scratch {
 protected:
  // A corpus of random pairs; returns them, source and target in turn.
  std::vector<Ids> write(int pairs, int32_t source_vocabulary, int32_t target_vocabulary) {
    PhiloxStream random(3, 1);
    CorpusWriter writer(path(), source_vocabulary, target_vocabulary);
    std::vector<Ids> sentences;
    for (int i = 0; i < pairs; ++i) {
      for (const int32_t vocabulary : {source_vocabulary, target_vocabulary}) {
        Ids ids(random.below(20));
        for (int32_t& id : ids) {
          id = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary)));
        }
        sentences.push_back(ids);
      }
      writer.add(sentences[sentences.size() - 2], sentences.back());
    }
    writer.finish();
    EXPECT_EQ(writer.pairs(), pairs);
    EXPECT_EQ(writer.checksum(), checksum_file(path()));
    return sentences;
  }

  std::filesystem::path path() const { return directory_ / "train.corpus"; }
};

TEST_F(CorpusFile, KeepsPairsWithNarrowAndWideIds) {
  for (const auto& [source, target] : {std::pair{65536, 100}, std::pair{100, 65537}, std::pair{8, 8}}) {
    SCOPED_TRACE(target);
    const auto sentences = write(301, source, target);
    const Corpus corpus = Corpus::open(path());
    ASSERT_EQ(corpus.size(), 301);
    EXPECT_EQ(corpus.vocabulary(Side::source), source);
    EXPECT_EQ(corpus.vocabulary(Side::target), target);
    int64_t tokens[2] = {0, 0};
    for (int64_t i = 0; i < corpus.size(); ++i) {
      for (const Side side : kSides) {
        Ids ids = {-5};
        corpus.append(side, i, ids);
        Ids expected = sentences[static_cast<size_t>(2 * i + static_cast<int>(side))];
        EXPECT_EQ(corpus.length(side, i), static_cast<int64_t>(expected.size()));
        tokens[static_cast<int>(side)] += corpus.length(side, i);
        expected.insert(expected.begin(), -5);
        EXPECT_EQ(ids, expected);
      }
    }
    EXPECT_EQ(corpus.tokens(Side::source), tokens[0]);
    EXPECT_EQ(corpus.tokens(Side::target), tokens[1]);
    EXPECT_GT(tokens[0], 1000);
    EXPECT_EQ(corpus.checksum().size(), 16U);
  }
}

// A CRC over data and its own CRC is a constant; the file must not be such data, or all fingerprints would be equal.
TEST_F(CorpusFile, OtherContentOfTheSameSizeHasAnotherChecksum) {
  std::set<std::string> sums;
  for (const int32_t id : {1, 2, 3}) {
    CorpusWriter writer(path(), 10, 10);
    writer.add(Ids{id}, Ids{4});
    writer.finish();
    sums.insert(checksum_file(path()));
  }
  EXPECT_EQ(sums.size(), 3U);
}

TEST_F(CorpusFile, EmptyCorpusIsSound) {
  write(0, 10, 10);
  EXPECT_EQ(Corpus::open(path()).size(), 0);
}

TEST_F(CorpusFile, EveryFlippedBitAndEveryCutIsFound) {
  write(12, 50, 50);
  const std::string whole = read_file(path());
  for (size_t bit = 0; bit < whole.size() * 8; bit += 11) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    write_file(path(), damaged);
    const std::string error = message_of([&] { Corpus::open(path()); });
    EXPECT_TRUE(contains(error, path().string())) << bit << ": " << error;
  }
  for (size_t size = 0; size < whole.size(); size += 5) {
    write_file(path(), whole.substr(0, size));
    const std::string error = message_of([&] { Corpus::open(path()); });
    EXPECT_TRUE(contains(error, path().string())) << size << ": " << error;
  }
}

// Malicious files with a correct checksum: if one opens, it can be read to its end.
TEST_F(CorpusFile, HostileNumbersWithoutChecksum) {
  write(12, 50, 50);
  const std::string whole = read_file(path());
  PhiloxStream random(8, 8);
  int refused = 0;
  for (int trial = 0; trial < 500; ++trial) {
    std::string hostile = whole;
    const size_t at = random.below(hostile.size() / 8) * 8;
    const uint64_t values[] = {UINT64_MAX, uint64_t{1} << 63, uint64_t{1} << 32, 1000, random.below(200)};
    std::memcpy(hostile.data() + at, &values[random.below(5)], 8);
    write_file(path(), hostile);
    try {
      const Corpus corpus = Corpus::open(path(), false);
      Ids ids;
      for (int64_t i = 0; i < corpus.size(); ++i) {
        corpus.append(Side::source, i, ids);
        corpus.append(Side::target, i, ids);
      }
      for (const int32_t id : ids) {
        ASSERT_LT(id, std::max(corpus.vocabulary(Side::source), corpus.vocabulary(Side::target)));
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
}

// As rsync --inplace and cp do it. Mapped into memory this was a SIGBUS or a crash.
TEST_F(CorpusFile, WhatChangesInUseIsAnError) {
  write(2000, 50, 50);
  const std::string whole = read_file(path());
  const auto overwrite = [&](const std::string& content) {
    std::ofstream file(path(), std::ios::binary | std::ios::in | std::ios::out);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
  };
  const auto read_all = [](const Corpus& corpus) {
    return message_of([&] {
      Ids ids;
      for (int64_t i = 0; i < corpus.size(); ++i) {
        corpus.append(Side::source, i, ids);
        corpus.append(Side::target, i, ids);
      }
    });
  };
  {
    const Corpus corpus = Corpus::open(path());
    corpus.require_unchanged();
    EXPECT_EQ(read_all(corpus), "");
    std::filesystem::resize_file(path(), 100);
    EXPECT_TRUE(contains(read_all(corpus), "became shorter"));
    EXPECT_TRUE(contains(message_of([&] { corpus.require_unchanged(); }), "was changed while it was in use"));
  }
  write_file(path(), whole);
  const Corpus corpus = Corpus::open(path());
  overwrite(std::string(whole.size(), '\xFF'));
  EXPECT_TRUE(contains(read_all(corpus), "overwritten while it was in use"));
  overwrite(whole);  // the same bytes, but later
  EXPECT_EQ(read_all(corpus), "");
  EXPECT_TRUE(contains(message_of([&] { corpus.require_unchanged(); }), "was changed while it was in use"));
}

TEST_F(CorpusFile, NotACorpus) {
  EXPECT_TRUE(contains(message_of([&] { Corpus::open(at("none")); }), "No such file"));
  write_file(path(), "");
  EXPECT_TRUE(contains(message_of([&] { Corpus::open(path()); }), "is empty"));
  EXPECT_TRUE(contains(message_of([&] { Corpus::open(directory_); }), "not a training corpus"));
  write_file(path(), std::string(500, 'x'));
  EXPECT_TRUE(contains(message_of([&] { Corpus::open(path()); }), "is not a training corpus made by"));
}

TEST_F(CorpusFile, WriterRefusesIdsOutsideTheVocabulary) {
  CorpusWriter writer(path(), 10, 10);
  EXPECT_THROW(writer.add(Ids{1, 10}, Ids{1}), Error);
  EXPECT_THROW(writer.add(Ids{-1}, Ids{1}), Error);
}

}  // namespace
}  // namespace tandem::data
