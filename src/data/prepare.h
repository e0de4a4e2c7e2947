// From text files to a directory that training reads: cleans, shuffles, learns subwords and encodes.
//
// The same input and seed give the same bytes of every file but stats.json, for any number of threads. Memory is 16
// bytes a pair and 8 for each copy, whatever the text's size; the cleaned text waits in a scratch file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/prepare_stats.h"
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

// A failure leaves nothing behind. Neither do SIGINT and SIGTERM, which end the process with 128 + signal.
PrepareStats prepare(const PrepareConfig& config);

}  // namespace tandem::data
