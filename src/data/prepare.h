// Makes a directory for training from text files: cleans, shuffles, learns subwords and encodes.
//
// The same input and seed give the same bytes in every file except stats.json, for any number of threads. Memory is 16
// bytes a pair and 8 for each copy, whatever the text's size; the cleaned text is kept in a scratch file.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/side.h"
#include "text/cleaning.h"
#include "text/subwords_train.h"

namespace tandem::data {

struct PrepareConfig {
  // Training text: source and target files (equally many), or files with both in two columns.
  std::vector<std::string> source, target, tsv;
  std::string valid_source, valid_target, test_source, test_target;  // empty = none
  int64_t valid_size = 0;  // > 0: take this many pairs out of the training text for validation

  std::filesystem::path out;
  bool force = false;  // replace `out` if it is a prepared directory

  text::CleaningRules cleaning;
  bool deduplicate = false;
  bool shuffle = true;
  uint64_t seed = 1;

  std::string tokenizer, target_tokenizer;  // existing models; empty = learn new ones
  bool separate = false;                    // one vocabulary for each side
  text::SubwordTraining training;
  double subword_dropout = 0;  // probability that a merge of the training text is left out
  int64_t copies = 1;          // copies of every training pair, each with other merges left out

  int threads = 0;  // 0 = all cores
};

// The counts of one preparation.
struct SideStats {
  // Counts one encoded sentence of at least one token.
  void add_sentence(std::span<const int32_t> ids, int32_t unknown_id);

  uint64_t raw_bytes = 0;      // bytes of text, including line ends
  uint64_t cleaned_bytes = 0;  // bytes of the pairs that are kept, including line ends
  uint64_t encoded_bytes = 0;  // bytes of their ids in the corpus
  int64_t words = 0;           // words of the pairs that are kept
  int64_t tokens = 0;
  int64_t unknown = 0;  // tokens that are unk
  int64_t vocabulary = 0;

  // Sentences with 1-10, 11-20, ... tokens; the last class has no upper end.
  static constexpr size_t kClasses = 21;
  static constexpr int64_t kClassWidth = 10;
  std::array<int64_t, kClasses> lengths{};
};

struct PrepareStats {
  int64_t raw_pairs = 0;
  int64_t pairs = 0;                                  // pairs in the training corpus, including copies
  int64_t copies = 1;                                 // copies of every pair, each with other pieces
  double subword_dropout = 0;                         // probability that a merge is left out
  std::array<int64_t, text::kDropReasons> dropped{};  // indexed by DropReason
  int64_t valid_pairs = 0, test_pairs = 0;
  SideStats side[2];
  bool joint = true;
  int64_t tokenizer_words = 0;      // different words used to learn subwords; 0 = existing tokenizer
  int64_t tokenizer_words_all = 0;  // different words in the text
  double seconds_reading = 0, seconds_training = 0, seconds_encoding = 0, seconds = 0;

  SideStats& operator[](Side which) { return side[static_cast<size_t>(which)]; }
  const SideStats& operator[](Side which) const { return side[static_cast<size_t>(which)]; }
};

std::string to_json(const PrepareStats& stats);
std::string to_table(const PrepareStats& stats);
// "12 empty, 3 length ratio"; empty if nothing was dropped.
std::string dropped_text(const PrepareStats& stats);

// A failure leaves nothing behind. Neither do SIGINT, SIGTERM and SIGHUP, which end the process with 128 + signal.
PrepareStats prepare(const PrepareConfig& config);

}  // namespace tandem::data
