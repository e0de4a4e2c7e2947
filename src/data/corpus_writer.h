// Writes train.corpus, pair after pair.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/side.h"
#include "data/corpus_format.h"

namespace tandem::data {

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
