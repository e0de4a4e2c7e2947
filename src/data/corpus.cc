#include "data/corpus.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>

#include "core/error.h"

namespace tandem::data {

namespace {

constexpr uint64_t kBlock = 1 << 20;  // ids or bytes read at once while a corpus is checked

int64_t modified(const struct stat& about) { return about.st_mtim.tv_sec * 1'000'000'000 + about.st_mtim.tv_nsec; }

}  // namespace

// Reads all but the ids, and checks that the sizes are plausible.
Corpus::Corpus(const std::filesystem::path& path) : path_(path), file_(open_to_read(path)) {
  struct stat about {};
  ::fstat(file_.get(), &about);
  bytes_ = S_ISREG(about.st_mode) ? static_cast<uint64_t>(about.st_size) : 0;
  modified_ = modified(about);
  require(bytes_ > 0, "{} is empty or not a file, not a training corpus", path.string());
  std::array<char, kCorpusMagic.size()> magic{};
  read_at(file_, magic.data(), std::min<uint64_t>(bytes_, magic.size()), 0, path);
  require(magic == kCorpusMagic, "{} is not a training corpus made by tandem prepare", path.string());
  if (bytes_ < kCorpusMagic.size() + sizeof(uint64_t) + sizeof footer_ || bytes_ % 8 != 0) {
    damaged("it is truncated");
  }
  const uint64_t end = bytes_ - sizeof footer_;
  read_at(file_, &footer_, sizeof footer_, end, path);
  if (footer_.magic != kCorpusMagic) {
    damaged("it is truncated");
  }
  require(footer_.version == kCorpusVersion,
          "{} has format version {}, but this program reads version {}; prepare it again", path.string(),
          footer_.version, kCorpusVersion);
  const uint64_t room = end - kCorpusMagic.size();
  const uint64_t tokens = footer_.tokens[0] + footer_.tokens[1];
  if ((footer_.id_bytes != 2 && footer_.id_bytes != 4) || footer_.pairs > room / 16 || footer_.tokens[0] > room ||
      footer_.tokens[1] > room || (tokens * footer_.id_bytes + 7) / 8 * 8 + (2 * footer_.pairs + 1) * 8 != room) {
    damaged("its sizes do not match");
  }
  if (std::max(footer_.vocabulary[0], footer_.vocabulary[1]) > INT32_MAX) {
    damaged("its vocabulary is too large");
  }
  offsets_.resize(2 * footer_.pairs + 1);
  const uint64_t offset_bytes = offsets_.size() * sizeof(uint64_t);
  read_at(file_, offsets_.data(), offset_bytes, end - offset_bytes, path);
}

void Corpus::damaged(const char* what) const { fail("{} is damaged: {}", path_.string(), what); }

void Corpus::check_checksum() const {
  Checksum sum;
  const uint64_t end = bytes_ - sizeof footer_ + offsetof(CorpusFooter, checksum);
  std::vector<char> block(kBlock);
  for (uint64_t at = 0; at < end; at += kBlock) {
    const uint64_t count = std::min(kBlock, end - at);
    read_at(file_, block.data(), count, at, path_);
    sum.add(block.data(), count);
  }
  require(sum.hex() == checksum(), "{} is damaged: its checksum is {}, not the one that was written", path_.string(),
          sum.hex());
}

// Guarantees that no offset points outside the ids and no id lies outside its vocabulary.
void Corpus::check_content() const {
  if (offsets_.front() != 0 || offsets_.back() != footer_.tokens[0] + footer_.tokens[1]) {
    damaged("its offsets do not match its ids");
  }
  if (!std::is_sorted(offsets_.begin(), offsets_.end())) {
    damaged("its offsets are not ascending");
  }
  std::vector<int32_t> ids;
  for (size_t first = 0; first + 1 < offsets_.size();) {  // sentences, as many at once as fill a block
    size_t last = first + 1;
    while (last + 1 < offsets_.size() && offsets_[last + 1] - offsets_[first] <= kBlock) {
      ++last;
    }
    ids.clear();
    read(offsets_[first], offsets_[last], ids);
    for (size_t i = first; i < last; ++i) {
      const auto at = [&](size_t sentence) {
        return ids.begin() + static_cast<ptrdiff_t>(offsets_[sentence] - offsets_[first]);
      };
      if (!std::all_of(at(i), at(i + 1),
                       [bound = footer_.vocabulary[i % 2]](int32_t id) { return static_cast<uint32_t>(id) < bound; })) {
        damaged("it has ids outside its vocabulary");
      }
    }
    first = last;
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

void Corpus::read(uint64_t begin, uint64_t end, std::vector<int32_t>& ids) const {
  const uint64_t count = end - begin, at = kCorpusMagic.size() + begin * footer_.id_bytes;
  const size_t before = ids.size();
  if (footer_.id_bytes == 2) {
    std::vector<uint16_t> narrow(count);
    read_at(file_, narrow.data(), count * sizeof(uint16_t), at, path_);
    ids.insert(ids.end(), narrow.begin(), narrow.end());
  } else {
    ids.resize(before + count);
    read_at(file_, ids.data() + before, count * sizeof(int32_t), at, path_);
  }
}

void Corpus::append(Side side, int64_t pair, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  read(begin(side, pair), end(side, pair), ids);
  for (size_t i = before; i < ids.size(); ++i) {
    if (static_cast<uint32_t>(ids[i]) >= static_cast<uint32_t>(vocabulary(side))) {
      damaged("it was overwritten while it was in use");
    }
  }
}

void Corpus::require_unchanged() const {
  struct stat about {};
  require(::fstat(file_.get(), &about) == 0 && static_cast<uint64_t>(about.st_size) == bytes_ &&
              modified(about) == modified_,
          "{} was changed while it was in use: end the run before you prepare its data again, or prepare another "
          "directory",
          path_.string());
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
