// The training corpus train.corpus: sentence pairs as token ids, without bos and eos. docs/formats.md has the layout.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/side.h"

namespace tandem::data {

// File: magic, ids (pair after pair, source then target), zeros up to a multiple of 8, offsets, CorpusFooter.
// offsets: 2 * pairs + 1 numbers of 64 bits, counted in ids: pair i has its source in [offsets[2i], offsets[2i+1]) and
// its target in [offsets[2i+1], offsets[2i+2]). All numbers are little-endian.
constexpr std::array<char, 8> kCorpusMagic = {'T', 'A', 'N', 'D', 'E', 'M', 'C', 'O'};
constexpr uint32_t kCorpusVersion = 1;

struct CorpusFooter {
  uint64_t pairs = 0;
  uint64_t tokens[2] = {0, 0};      // source, target
  uint32_t vocabulary[2] = {0, 0};  // every id is smaller than this
  uint32_t id_bytes = 0;            // 2 or 4
  uint32_t version = kCorpusVersion;
  // CRC-64/XZ of all bytes of the file before this field, as hexadecimal digits. As a number it would make the checksum
  // of the whole file the same for every content: a CRC over data and its own CRC is a constant.
  std::array<char, 16> checksum{};
  std::array<char, 8> magic = kCorpusMagic;
};
static_assert(sizeof(CorpusFooter) == 64);

// A corpus in use. Lengths are in memory; ids are read when they are wanted and checked again, because nobody can keep
// the file from being written to meanwhile. Thread-safe: const after open.
class Corpus {
 public:
  // Checks the file's sizes, every offset and id and, if `verify`, its checksum; errors name file and fault.
  static Corpus open(const std::filesystem::path& path, bool verify = true);

  int64_t size() const { return static_cast<int64_t>(footer_.pairs); }  // sentence pairs
  // Tokens of a sentence.
  int64_t length(Side side, int64_t pair) const { return static_cast<int64_t>(end(side, pair) - begin(side, pair)); }
  // Total number of tokens.
  int64_t tokens(Side side) const { return static_cast<int64_t>(footer_.tokens[static_cast<size_t>(side)]); }
  // Every id is smaller than this.
  int32_t vocabulary(Side side) const { return static_cast<int32_t>(footer_.vocabulary[static_cast<size_t>(side)]); }
  void append(Side side, int64_t pair, std::vector<int32_t>& ids) const;
  // Fails if the file was written to since it was opened.
  void require_unchanged() const;
  // The content's checksum as hexadecimal digits.
  std::string checksum() const { return {footer_.checksum.begin(), footer_.checksum.end()}; }

 private:
  explicit Corpus(const std::filesystem::path& path);
  void check_checksum() const;
  void check_content() const;
  [[noreturn]] void damaged(const char* what) const;

  uint64_t begin(Side side, int64_t pair) const { return offsets_[2 * pair + static_cast<int>(side)]; }
  uint64_t end(Side side, int64_t pair) const { return offsets_[2 * pair + static_cast<int>(side) + 1]; }
  // Appends ids [begin, end) of the file.
  void read(uint64_t begin, uint64_t end, std::vector<int32_t>& ids) const;

  std::filesystem::path path_;
  Descriptor file_;
  uint64_t bytes_ = 0;
  int64_t modified_ = 0;  // nanoseconds
  CorpusFooter footer_;
  std::vector<uint64_t> offsets_;
};

// Writes a corpus, pair after pair.
class CorpusWriter {
 public:
  // The sizes of the vocabularies decide whether an id takes 16 or 32 bits.
  CorpusWriter(const std::filesystem::path& path, int32_t source_vocabulary, int32_t target_vocabulary);

  void add(std::span<const int32_t> source, std::span<const int32_t> target);
  void finish();

  int64_t pairs() const { return static_cast<int64_t>(lengths_.size() / 2); }
  int id_bytes() const { return static_cast<int>(footer_.id_bytes); }
  uint64_t bytes() const { return file_.size(); }
  std::string checksum() const { return file_.checksum(); }  // covers the whole file

 private:
  void add_side(Side side, std::span<const int32_t> ids);

  FileWriter file_;
  CorpusFooter footer_;
  std::vector<uint32_t> lengths_;
};

}  // namespace tandem::data
