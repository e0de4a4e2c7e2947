// Subword regularisation against overfitting of small corpora: a text is cut into other pieces each time, because every
// merge of a BPE model is left out with some probability (Provilkov et al., "BPE-Dropout", 2020).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/philox.h"
#include "text/subwords.h"

namespace tandem::text {

class SubwordDropout {
 public:
  // `subwords` must outlive this object. Fails if it has no merges to leave out; `name` is for the message.
  SubwordDropout(const Subwords& subwords, double rate, const std::string& name);
  SubwordDropout(const SubwordDropout&) = delete;
  SubwordDropout& operator=(const SubwordDropout&) = delete;

  // Appends the pieces of one line, which decode to the same text as those of Subwords::encode(). The pieces of words
  // with unknown characters or, once normalised, more than kLongestWord bytes, and of lines with a literal space mark
  // do not change.
  void encode(std::string_view line, PhiloxStream& random, std::vector<int32_t>& ids) const;

 private:
  static constexpr size_t kLongestWord = 1000;  // the time for a word grows with the square of its length
  static constexpr float kNone = -std::numeric_limits<float>::infinity();

  struct Piece {
    int32_t id;
    float score;  // the highest is merged first
  };

  struct Part {
    std::string_view text;
    float score;  // score of the piece that it forms with its right neighbour; kNone: no piece, or it was left out
  };

  float score_of(const std::vector<Part>& parts, size_t left) const;
  void merge(std::string_view text, PhiloxStream& random, std::vector<Part>& parts) const;

  const Subwords& subwords_;
  double rate_;
  std::vector<std::string> texts_;  // the pieces' texts by id; empty: not made by merges
  std::unordered_map<std::string_view, Piece> pieces_;
};

}  // namespace tandem::text
