// The input of prepare: sentence pairs from text files; cleaned pairs are kept in a scratch file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/file.h"
#include "data/lines.h"

namespace tandem::data {

// All pairs of two lists of files, or of one list of two-column files, one file after the other.
class PairReader {
 public:
  // Give either `source` and `target`, or `tsv`. Fails if a "-" would be read twice or the lists differ in length.
  PairReader(std::vector<std::string> source, std::vector<std::string> target, std::vector<std::string> tsv);

  // Returns false at the end of all files. Fails for an empty file and for two files with unequal numbers of lines.
  bool next(std::string& source, std::string& target);
  bool cut() const { return cut_; }  // the last pair had a line longer than LineReader::kLongestLine

  std::string place() const;      // "line 12 of a.en", for messages
  uint64_t source_bytes() const;  // bytes of text read so far, including line ends
  uint64_t target_bytes() const;
  double share() const;  // share that has been read, all files weighted equally; negative if unknown

 private:
  bool next_line(std::string& source, std::string& target);
  bool next_tsv(std::string& source, std::string& target);
  void close_files();
  [[noreturn]] void fail_unequal();

  std::vector<std::string> source_, target_;  // if tsv_, source_ holds the files
  bool tsv_;
  bool cut_ = false;
  size_t file_ = 0;
  std::unique_ptr<LineReader> left_, right_;
  uint64_t source_bytes_ = 0, target_bytes_ = 0;
};

// The unchanged lines of both sides, with "\n" after each.
struct TextSet {
  void add(const std::string& source_line, const std::string& target_line);

  std::string source, target;
  int64_t pairs = 0;
};

// Reads text without cleaning it: the reference must stay raw. Fails for unequal line counts and for text that is not
// UTF-8; warns of empty lines. If both names are empty, so is the set.
TextSet read_text_set(const std::string& source, const std::string& target);

// Pairs of lines in a file, written one after the other and then read in any order.
class PairStore {
 public:
  explicit PairStore(const std::filesystem::path& path) : writer_(path) {}
  ~PairStore();

  uint64_t add(const std::string& source, const std::string& target);  // returns the pair's position
  void end_writing();
  // Thread-safe.
  void read(uint64_t place, std::string& source, std::string& target) const;

 private:
  FileWriter writer_;
  Descriptor file_;
};

}  // namespace tandem::data
