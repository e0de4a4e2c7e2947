#include "data/corpus.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "core/error.h"
#include "core/file.h"
#include "data/corpus_format.h"

namespace tandem::data {

namespace {

// A read-only mapping of a whole file.
class Mapping {
 public:
  explicit Mapping(const std::filesystem::path& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    require(file >= 0, "cannot read {}: {}", path.string(), std::strerror(errno));
    struct stat about {};
    ::fstat(file, &about);
    size_ = S_ISREG(about.st_mode) ? static_cast<size_t>(about.st_size) : 0;
    void* const data = size_ > 0 ? ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    const int error = errno;
    ::close(file);
    require(size_ > 0, "{} is empty or not a file, not a training corpus", path.string());
    require(data != MAP_FAILED, "cannot map {} into memory: {}", path.string(), std::strerror(error));
    data_ = static_cast<const char*>(data);
  }
  ~Mapping() {
    if (data_ != nullptr) {
      ::munmap(const_cast<char*>(data_), size_);
    }
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

template <class Id>
bool all_below(const Id* ids, uint64_t count, uint32_t bound) {
  Id largest = 0;
  for (uint64_t i = 0; i < count; ++i) {
    largest = std::max(largest, ids[i]);
  }
  return largest < bound || count == 0;
}

}  // namespace

struct Corpus::State {
  explicit State(const std::filesystem::path& file) : path(file), mapping(file) {}

  void read_footer();
  void check_checksum() const;
  void check_content() const;
  [[noreturn]] void damaged(const char* what) const { fail("{} is damaged: {}", path.string(), what); }

  // First and one past the last id of a sentence.
  uint64_t begin(Side side, int64_t pair) const { return offsets[2 * pair + static_cast<int>(side)]; }
  uint64_t end(Side side, int64_t pair) const { return offsets[2 * pair + static_cast<int>(side) + 1]; }
  const uint16_t* narrow() const { return reinterpret_cast<const uint16_t*>(mapping.data() + kCorpusMagic.size()); }
  const uint32_t* wide() const { return reinterpret_cast<const uint32_t*>(mapping.data() + kCorpusMagic.size()); }

  std::filesystem::path path;
  Mapping mapping;
  CorpusFooter footer;
  std::span<const uint64_t> offsets;
  std::string checksum;
};

void Corpus::State::read_footer() {
  const size_t size = mapping.size();
  if (size < kCorpusMagic.size() || std::memcmp(mapping.data(), kCorpusMagic.data(), kCorpusMagic.size()) != 0) {
    fail("{} is not a training corpus made by tandem prepare", path.string());
  }
  if (size < kCorpusMagic.size() + sizeof(uint64_t) + sizeof footer || size % 8 != 0) {
    damaged("it is truncated");
  }
  std::memcpy(&footer, mapping.data() + size - sizeof footer, sizeof footer);
  if (footer.magic != kCorpusMagic) {
    damaged("it is truncated");
  }
  require(footer.version == kCorpusVersion,
          "{} has format version {}, but this program reads version {}; prepare it again", path.string(),
          footer.version, kCorpusVersion);
  const uint64_t room = size - kCorpusMagic.size() - sizeof footer;
  const uint64_t tokens = footer.tokens[0] + footer.tokens[1];
  if ((footer.id_bytes != 2 && footer.id_bytes != 4) || footer.pairs > room / 16 || footer.tokens[0] > room ||
      footer.tokens[1] > room || (tokens * footer.id_bytes + 7) / 8 * 8 + (2 * footer.pairs + 1) * 8 != room) {
    damaged("its sizes do not match");
  }
  if (std::max(footer.vocabulary[0], footer.vocabulary[1]) > INT32_MAX) {
    damaged("its vocabulary is too large");
  }
  const char* const table = mapping.data() + size - sizeof footer - (2 * footer.pairs + 1) * 8;
  offsets = {reinterpret_cast<const uint64_t*>(table), 2 * footer.pairs + 1};
  checksum.assign(footer.checksum.begin(), footer.checksum.end());
}

void Corpus::State::check_checksum() const {
  Checksum sum;
  sum.add(mapping.data(), mapping.size() - sizeof footer + offsetof(CorpusFooter, checksum));
  require(sum.hex() == checksum, "{} is damaged: its checksum is {}, not the one that was written", path.string(),
          sum.hex());
}

// Guarantees that no offset points outside the ids and no id lies outside its vocabulary.
void Corpus::State::check_content() const {
  if (offsets.front() != 0 || offsets.back() != footer.tokens[0] + footer.tokens[1]) {
    damaged("its offsets do not match its ids");
  }
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    const uint64_t first = offsets[i];
    const uint64_t count = offsets[i + 1] - first;
    if (offsets[i + 1] < first || offsets[i + 1] > offsets.back()) {
      damaged("its offsets are not ascending");
    }
    const uint32_t bound = footer.vocabulary[i % 2];
    if (!(footer.id_bytes == 2 ? all_below(narrow() + first, count, bound) : all_below(wide() + first, count, bound))) {
      damaged("it has ids outside its vocabulary");
    }
  }
}

Corpus Corpus::open(const std::filesystem::path& path, bool verify) {
  auto state = std::make_unique<State>(path);
  state->read_footer();
  if (verify) {
    state->check_checksum();
  }
  state->check_content();
  return Corpus(std::move(state));
}

Corpus::Corpus(std::unique_ptr<State> state) : state_(std::move(state)) {}
Corpus::Corpus(Corpus&&) noexcept = default;
Corpus& Corpus::operator=(Corpus&&) noexcept = default;
Corpus::~Corpus() = default;

int64_t Corpus::size() const { return static_cast<int64_t>(state_->footer.pairs); }

int64_t Corpus::length(Side side, int64_t pair) const {
  return static_cast<int64_t>(state_->end(side, pair) - state_->begin(side, pair));
}

int64_t Corpus::tokens(Side side) const {
  return static_cast<int64_t>(state_->footer.tokens[static_cast<size_t>(side)]);
}

int32_t Corpus::vocabulary(Side side) const {
  return static_cast<int32_t>(state_->footer.vocabulary[static_cast<size_t>(side)]);
}

void Corpus::append(Side side, int64_t pair, std::vector<int32_t>& ids) const {
  const uint64_t begin = state_->begin(side, pair);
  const uint64_t end = state_->end(side, pair);
  if (state_->footer.id_bytes == 2) {
    ids.insert(ids.end(), state_->narrow() + begin, state_->narrow() + end);
  } else {
    ids.insert(ids.end(), state_->wide() + begin, state_->wide() + end);
  }
}

const std::string& Corpus::checksum() const { return state_->checksum; }

}  // namespace tandem::data
