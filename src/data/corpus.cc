#include "data/corpus.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "core/error.h"

namespace tandem::data {

namespace {

template <class Id>
bool all_below(const Id* ids, uint64_t count, uint32_t bound) {
  Id largest = 0;
  for (uint64_t i = 0; i < count; ++i) {
    largest = std::max(largest, ids[i]);
  }
  return largest < bound || count == 0;
}

}  // namespace

void Corpus::Unmap::operator()(const char* data) const { ::munmap(const_cast<char*>(data), bytes); }

// Maps the whole file read-only and checks that its sizes are plausible.
Corpus::Corpus(const std::filesystem::path& path) : path_(path) {
  const Descriptor file = open_to_read(path);
  struct stat about {};
  ::fstat(file.get(), &about);
  const size_t size = S_ISREG(about.st_mode) ? static_cast<size_t>(about.st_size) : 0;
  void* const data = size > 0 ? ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0) : MAP_FAILED;
  require(size > 0, "{} is empty or not a file, not a training corpus", path.string());
  require(data != MAP_FAILED, "cannot map {} into memory: {}", path.string(), std::strerror(errno));
  file_ = {static_cast<const char*>(data), Unmap{size}};
  require(size >= kCorpusMagic.size() && std::memcmp(data, kCorpusMagic.data(), kCorpusMagic.size()) == 0,
          "{} is not a training corpus made by tandem prepare", path.string());
  if (size < kCorpusMagic.size() + sizeof(uint64_t) + sizeof footer_ || size % 8 != 0) {
    damaged("it is truncated");
  }
  const char* const end = file_.get() + size - sizeof footer_;
  std::memcpy(&footer_, end, sizeof footer_);
  if (footer_.magic != kCorpusMagic) {
    damaged("it is truncated");
  }
  require(footer_.version == kCorpusVersion,
          "{} has format version {}, but this program reads version {}; prepare it again", path.string(),
          footer_.version, kCorpusVersion);
  const uint64_t room = size - kCorpusMagic.size() - sizeof footer_;
  const uint64_t tokens = footer_.tokens[0] + footer_.tokens[1];
  if ((footer_.id_bytes != 2 && footer_.id_bytes != 4) || footer_.pairs > room / 16 || footer_.tokens[0] > room ||
      footer_.tokens[1] > room || (tokens * footer_.id_bytes + 7) / 8 * 8 + (2 * footer_.pairs + 1) * 8 != room) {
    damaged("its sizes do not match");
  }
  if (std::max(footer_.vocabulary[0], footer_.vocabulary[1]) > INT32_MAX) {
    damaged("its vocabulary is too large");
  }
  offsets_ = {reinterpret_cast<const uint64_t*>(end) - (2 * footer_.pairs + 1), 2 * footer_.pairs + 1};
}

void Corpus::damaged(const char* what) const { fail("{} is damaged: {}", path_.string(), what); }

void Corpus::check_checksum() const {
  Checksum sum;
  sum.add(file_.get(), file_bytes() - sizeof footer_ + offsetof(CorpusFooter, checksum));
  require(sum.hex() == checksum(), "{} is damaged: its checksum is {}, not the one that was written", path_.string(),
          sum.hex());
}

// Guarantees that no offset points outside the ids and no id lies outside its vocabulary.
void Corpus::check_content() const {
  if (offsets_.front() != 0 || offsets_.back() != footer_.tokens[0] + footer_.tokens[1]) {
    damaged("its offsets do not match its ids");
  }
  for (size_t i = 0; i + 1 < offsets_.size(); ++i) {
    const uint64_t first = offsets_[i];
    const uint64_t count = offsets_[i + 1] - first;
    if (offsets_[i + 1] < first || offsets_[i + 1] > offsets_.back()) {
      damaged("its offsets are not ascending");
    }
    const uint32_t bound = footer_.vocabulary[i % 2];
    if (!(footer_.id_bytes == 2 ? all_below(ids<uint16_t>() + first, count, bound)
                                : all_below(ids<uint32_t>() + first, count, bound))) {
      damaged("it has ids outside its vocabulary");
    }
  }
}

Corpus Corpus::open(const std::filesystem::path& path, bool verify) {
  Corpus corpus(path);
  if (verify) {
    corpus.check_checksum();
  }
  corpus.check_content();
  return corpus;
}

void Corpus::append(Side side, int64_t pair, std::vector<int32_t>& ids) const {
  const auto append_from = [&](const auto* all) {
    ids.insert(ids.end(), all + begin(side, pair), all + end(side, pair));
  };
  footer_.id_bytes == 2 ? append_from(this->ids<uint16_t>()) : append_from(this->ids<uint32_t>());
}

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
