// A directory made by `tandem prepare`, opened for training: the corpus, the raw validation and test text, and the
// subword models. docs/formats.md lists its files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "text/subwords.h"

namespace tandem {

// Raw text, line i of source says the same as line i of target. Empty when the set was not given.
struct TextPairs {
  std::vector<std::string> source;
  std::vector<std::string> target;

  size_t size() const { return source.size(); }
};

struct Prepared {
  // Checks manifest and checksums of every file; fails with one sentence that names the damaged file.
  static Prepared open(const std::filesystem::path& directory);

  std::filesystem::path directory;
  Corpus train;
  TextPairs valid;
  TextPairs test;
  bool joint = true;  // one subword model for both sides
  // With a joint vocabulary both are the same model.
  const Subwords& subwords(Side side) const { return side == Side::source || joint ? source : target.front(); }
  // A training sentence in the pieces that translation uses: with subword dropout the corpus has others. Where a piece
  // is unknown, so is its text, and they stay as they are.
  std::vector<int32_t> plain_pieces(Side side, int64_t pair) const;
  std::string fingerprint;  // changes when anything that training reads changes; for resume checks

  Subwords source;
  std::vector<Subwords> target;  // empty when joint
};

}  // namespace tandem
