#include "data/corpus_writer.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "core/error.h"

namespace tandem::data {

CorpusWriter::CorpusWriter(const std::filesystem::path& path, int32_t source_vocabulary, int32_t target_vocabulary)
    : file_(path) {
  footer_.vocabulary[0] = static_cast<uint32_t>(source_vocabulary);
  footer_.vocabulary[1] = static_cast<uint32_t>(target_vocabulary);
  footer_.id_bytes = std::max(source_vocabulary, target_vocabulary) <= 65536 ? 2 : 4;
  file_.write(kCorpusMagic.data(), kCorpusMagic.size());
}

void CorpusWriter::add_side(Side side, std::span<const int32_t> ids) {
  const auto index = static_cast<size_t>(side);
  for (const int32_t id : ids) {
    const auto wide = static_cast<uint32_t>(id);
    require(wide < footer_.vocabulary[index], "the token id {} is not in the vocabulary of {}", id,
            footer_.vocabulary[index]);
  }
  if (footer_.id_bytes == 4) {
    file_.write(ids.data(), ids.size_bytes());
  } else {
    const std::vector<uint16_t> narrow(ids.begin(), ids.end());
    file_.write(narrow.data(), narrow.size() * sizeof(uint16_t));
  }
  footer_.tokens[index] += ids.size();
  lengths_.push_back(static_cast<uint32_t>(ids.size()));
}

void CorpusWriter::add(std::span<const int32_t> source, std::span<const int32_t> target) {
  add_side(Side::source, source);
  add_side(Side::target, target);
}

void CorpusWriter::finish() {
  const uint64_t zeros = 0;
  file_.write(&zeros, (8 - file_.size() % 8) % 8);
  uint64_t offset = 0;
  file_.write(&offset, sizeof offset);
  for (const uint32_t length : lengths_) {
    offset += length;
    file_.write(&offset, sizeof offset);
  }
  footer_.pairs = lengths_.size() / 2;
  file_.write(&footer_, offsetof(CorpusFooter, checksum));
  const std::string sum = file_.checksum();
  std::copy_n(sum.begin(), footer_.checksum.size(), footer_.checksum.begin());
  file_.write(&footer_.checksum, sizeof footer_ - offsetof(CorpusFooter, checksum));
  file_.finish();
}

}  // namespace tandem::data
