// A directory made by `tandem prepare`, opened for training: the corpus, the raw validation and test text, and the
// subword models. docs/formats.md lists its files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "text/subwords.h"

namespace tandem::data {

// Names of the files in a prepared directory.
constexpr const char* kPreparedKind = "prepared";
constexpr const char* kCorpusFile = "train.corpus";
constexpr const char* kJointTokenizerFile = "joint.model";
constexpr const char* kSourceTokenizerFile = "source.model";
constexpr const char* kTargetTokenizerFile = "target.model";
constexpr const char* kStatisticsFile = "stats.json";

// Raw text: line i of target is the translation of line i of source. Empty if the set was not given.
struct TextPairs {
  std::vector<std::string> source;
  std::vector<std::string> target;

  size_t size() const { return source.size(); }
};

struct Prepared {
  // Checks the manifest and the checksums of every file; an error names the damaged file.
  static Prepared open(const std::filesystem::path& directory);

  std::filesystem::path directory;
  Corpus train;
  TextPairs valid;
  TextPairs test;
  bool joint = true;  // one subword model for both sides
  // With a joint vocabulary both sides have the same model.
  const text::Subwords& subwords(Side side) const { return side == Side::source || joint ? source : target.front(); }
  // A training sentence as translation would encode it: with subword dropout the corpus has other pieces. A sentence
  // with unknown tokens is returned as it is, because their text is lost.
  std::vector<int32_t> plain_tokens(Side side, int64_t pair) const;
  std::string fingerprint;  // changes if any data for training changes; compared when resuming

  text::Subwords source;
  std::vector<text::Subwords> target;  // empty if joint
};

}  // namespace tandem::data
