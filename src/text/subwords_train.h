// Trains a SentencePiece BPE model from counted words.
//
// SentencePiece itself cuts its text into words and counts them before it learns merges, so word counts give the same
// model as the text, in less time and memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem::text {

// The number of occurrences of each word. Memory is bounded: the rarest of too many different words are forgotten.
class WordCounts {
 public:
  void add(std::string_view line);
  size_t size() const { return words_.size(); }  // different words
  int64_t total() const { return total_; }       // words seen

  // The most frequent words as "word<tab>count", in a fixed order, plus all words that are needed to have every
  // character.
  std::vector<std::string> most_frequent(size_t most) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };
  void forget_rare();

  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> words_;
  int64_t total_ = 0;
};

struct SubwordTraining {
  int64_t vocab_size = 32768;
  double character_coverage = 1;  // share of the characters' occurrences that get a piece of their own
  int64_t words = 200000;         // learn from at most this many different words
};

// Returns the model file's content. If the words allow fewer pieces, the error names the largest possible number.
std::string train_subwords(const WordCounts& counts, const SubwordTraining& options);

}  // namespace tandem::text
