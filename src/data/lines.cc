#include "data/lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filter/lzma.hpp>
#include <boost/iostreams/filter/zstd.hpp>
#include <boost/iostreams/filtering_streambuf.hpp>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/file.h"

namespace tandem::data {

namespace io = boost::iostreams;

namespace {

constexpr size_t kBlock = size_t{1} << 18;

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

// Follows the frames of a zstd stream, to detect an end inside a frame: Boost's decompressor does not distinguish a
// truncated file from a complete one.
class ZstdFrames {
 public:
  // Processes the next compressed bytes.
  void add(std::string_view bytes) {
    while (!bytes.empty()) {
      if (skip_ > 0) {
        const size_t part = std::min<uint64_t>(skip_, bytes.size());
        skip_ -= part;
        bytes.remove_prefix(part);
        continue;
      }
      const size_t part = std::min(wanted_ - field_.size(), bytes.size());
      field_.append(bytes.substr(0, part));
      bytes.remove_prefix(part);
      if (field_.size() == wanted_) {
        read_field();
        field_.clear();
      }
    }
  }

  bool complete() const { return state_ == State::magic && field_.empty() && skip_ == 0; }

 private:
  enum class State { magic, skippable_size, descriptor, block };

  // RFC 8878, section 3.1. A wrong magic number is left to the decompressor.
  void read_field() {
    const uint32_t value = little_endian(field_);
    switch (state_) {
      case State::magic:
        state_ = (value & ~0xFU) == 0x184D2A50 ? State::skippable_size : State::descriptor;
        wanted_ = state_ == State::descriptor ? 1 : 4;
        break;
      case State::skippable_size:
        skip_ = value;
        state_ = State::magic;
        wanted_ = 4;
        break;
      case State::descriptor: {
        const bool single_segment = (value >> 5 & 1) == 1;
        const uint64_t dictionary[] = {0, 1, 2, 4};
        const uint64_t content[] = {single_segment ? 1U : 0U, 2, 4, 8};
        skip_ = (single_segment ? 0 : 1) + dictionary[value & 3] + content[value >> 6];
        checksum_ = (value >> 2 & 1) == 1;
        state_ = State::block;
        wanted_ = 3;
        break;
      }
      case State::block: {
        const bool last = (value & 1) == 1;
        const bool repeated = (value >> 1 & 3) == 1;  // one byte represents the whole block
        skip_ = (repeated ? 1 : value >> 3) + (last && checksum_ ? 4 : 0);
        state_ = last ? State::magic : State::block;
        wanted_ = last ? 4 : 3;
        break;
      }
    }
  }

  State state_ = State::magic;
  size_t wanted_ = 4;  // bytes of the field that is being read
  std::string field_;  // its bytes so far
  uint64_t skip_ = 0;  // bytes to skip before the next field
  bool checksum_ = false;
};

// The raw bytes of a file, with a look ahead at its first bytes.
class RawFile {
 public:
  using char_type = char;
  using category = io::source_tag;

  explicit RawFile(const std::string& path) : name_(path == "-" ? "standard input" : path) {
    file_ = path == "-" ? Descriptor(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)) : open_to_read(path);
    require(file_.open(), "cannot read {}: {}", name_, std::strerror(errno));
    struct stat about {};
    ::fstat(file_.get(), &about);
    require(!S_ISDIR(about.st_mode), "{} is a directory, not a text file", name_);
    size_ = S_ISREG(about.st_mode) ? static_cast<uint64_t>(about.st_size) : 0;
    head_.resize(6);
    size_t filled = 0;
    while (const size_t count = read_some(file_, head_.data() + filled, head_.size() - filled, name_)) {
      filled += count;
    }
    head_.resize(filled);
  }

  // Returns the number of bytes read, or -1 at the end, as Boost.Iostreams requires.
  std::streamsize read(char* buffer, std::streamsize bytes) {
    size_t count = std::min(head_.size() - head_used_, static_cast<size_t>(bytes));
    if (count > 0) {
      std::copy_n(head_.data() + head_used_, count, buffer);
      head_used_ += count;
    } else {
      count = read_some(file_, buffer, static_cast<size_t>(bytes), name_);
    }
    position_ += count;
    if (starts_with(kZstd)) {
      frames_.add({buffer, count});
    }
    return count > 0 ? static_cast<std::streamsize>(count) : -1;
  }

  bool starts_with(std::string_view magic) const { return std::string_view(head_).starts_with(magic); }
  bool empty() const { return head_.empty(); }
  bool ends_inside_frame() const { return starts_with(kZstd) && !frames_.complete(); }
  const std::string& name() const { return name_; }
  double share() const { return size_ == 0 ? -1 : static_cast<double>(position_) / static_cast<double>(size_); }

  static constexpr std::string_view kGzip = "\x1F\x8B";
  static constexpr std::string_view kXz{
      "\xFD"
      "7zXZ\0",
      6};
  static constexpr std::string_view kZstd = "\x28\xB5\x2F\xFD";

 private:
  std::string name_, head_;
  Descriptor file_;
  size_t head_used_ = 0;
  uint64_t size_ = 0, position_ = 0;
  ZstdFrames frames_;
};

}  // namespace

struct LineReader::State {
  State(const std::string& path, bool keep) : file(path), block(kBlock), keep_mark(keep) {
    if (file.starts_with(RawFile::kGzip)) {
      text.push(io::gzip_decompressor());
    } else if (file.starts_with(RawFile::kXz)) {
      text.push(io::lzma_decompressor());
    } else if (file.starts_with(RawFile::kZstd)) {
      text.push(io::zstd_decompressor());
    }
    text.push(boost::ref(file));
  }

  // Reads the next block of text; false at the end.
  bool fill() {
    std::streamsize count = 0;
    try {
      count = text.sgetn(block.data(), static_cast<std::streamsize>(block.size()));
    } catch (const Error&) {
      throw;
    } catch (const std::exception&) {
      fail("{} is damaged or truncated: it cannot be decompressed after line {}", file.name(), lines);
    }
    if (count <= 0) {
      require(!file.ends_inside_frame(), "{} is truncated: its compressed data ends after line {}", file.name(), lines);
      return false;
    }
    rest = {block.data(), static_cast<size_t>(count)};
    if (bytes == 0 && !keep_mark && rest.starts_with("\xEF\xBB\xBF")) {
      rest.remove_prefix(3);
    }
    bytes += static_cast<uint64_t>(count);
    return true;
  }

  void append(std::string& line, std::string_view part) {
    require(part.find('\0') == std::string_view::npos,
            "{} is not a UTF-8 text file: line {} has a zero byte; convert it to UTF-8 text first", file.name(),
            lines + 1);
    const size_t room = kLongestLine - line.size();
    cut |= part.size() > room;
    line.append(part.substr(0, room));
  }

  RawFile file;
  io::filtering_istreambuf text;
  std::vector<char> block;
  std::string_view rest;  // the unread part of the block
  bool keep_mark;
  int64_t lines = 0;
  uint64_t bytes = 0;
  bool cut = false;
};

LineReader::LineReader(const std::string& path, bool keep_mark) : state_(std::make_unique<State>(path, keep_mark)) {}
LineReader::~LineReader() = default;

bool LineReader::next(std::string& line) {
  State& state = *state_;
  line.clear();
  state.cut = false;
  bool any = false;
  while (!state.rest.empty() || state.fill()) {
    any = true;
    const size_t end = state.rest.find('\n');
    state.append(line, state.rest.substr(0, end));
    if (end != std::string_view::npos) {
      state.rest.remove_prefix(end + 1);
      break;
    }
    state.rest = {};
  }
  if (any && line.ends_with('\r')) {
    line.pop_back();
  }
  state.lines += any ? 1 : 0;
  return any;
}

bool LineReader::cut() const { return state_->cut; }
int64_t LineReader::lines() const { return state_->lines; }
uint64_t LineReader::bytes() const { return state_->bytes - state_->rest.size(); }
double LineReader::share() const { return state_->file.share(); }
const std::string& LineReader::name() const { return state_->file.name(); }

void read_whole(const std::string& path, bool keep_mark,
                const std::function<void(std::string& line, const LineReader& reader)>& take) {
  LineReader reader(path, keep_mark);
  for (std::string line; reader.next(line);) {
    require(!reader.cut(), "line {} of {} is longer than {} bytes: is this one sentence a line?", reader.lines(),
            reader.name(), LineReader::kLongestLine);
    require(reader.lines() <= kMostLines && reader.bytes() <= kMostBytes,
            "{} has more than {} lines or {} bytes of text: it is too large to be compared as a whole", reader.name(),
            kMostLines, kMostBytes);
    take(line, reader);
  }
}

}  // namespace tandem::data
