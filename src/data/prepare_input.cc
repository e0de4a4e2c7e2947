#include "data/prepare_input.h"

#include <unistd.h>

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "text/cleaning.h"

namespace tandem::data {

namespace {

constexpr size_t kLargestSet = size_t{1} << 30;  // bytes of a validation or test set

struct Record {
  uint32_t source = 0, target = 0;  // lengths in bytes; the texts follow
};

}  // namespace

PairReader::PairReader(std::vector<std::string> source, std::vector<std::string> target, std::vector<std::string> tsv)
    : source_(tsv.empty() ? std::move(source) : std::move(tsv)), target_(std::move(target)), tsv_(target_.empty()) {
  require(tsv_ || source_.size() == target_.size(), "there are {} source files but {} target files", source_.size(),
          target_.size());
  require(std::count(source_.begin(), source_.end(), "-") + std::count(target_.begin(), target_.end(), "-") <= 1,
          "standard input (-) can be read only once");
}

bool PairReader::next(std::string& source, std::string& target) {
  while (file_ < source_.size()) {
    if (left_ == nullptr) {
      left_ = std::make_unique<LineReader>(source_[file_]);
      right_ = tsv_ ? nullptr : std::make_unique<LineReader>(target_[file_]);
    }
    if (tsv_ ? next_tsv(source, target) : next_line(source, target)) {
      return true;
    }
    close_files();
  }
  return false;
}

bool PairReader::next_line(std::string& source, std::string& target) {
  const bool left = left_->next(source);
  const bool right = right_->next(target);
  if (left != right) {
    fail_unequal();
  }
  cut_ = left_->cut() || right_->cut();
  return left;
}

bool PairReader::next_tsv(std::string& source, std::string& target) {
  if (!left_->next(source)) {
    return false;
  }
  cut_ = left_->cut();
  const auto tabs = std::count(source.begin(), source.end(), '\t');
  require(tabs == 1 || cut_ || source.empty(), "{} has {} columns instead of 2 (source, tab, target)", place(),
          tabs + 1);
  const size_t tab = std::min(source.find('\t'), source.size());
  target = source.substr(std::min(tab + 1, source.size()));
  source.resize(tab);
  source_bytes_ += source.size() + 1;
  target_bytes_ += target.size() + 1;
  return true;
}

void PairReader::fail_unequal() {
  std::string line;
  for (LineReader* const reader : {left_.get(), right_.get()}) {
    while (reader->next(line)) {
    }
  }
  fail("{} has {} lines but {} has {}; line n of one must be the translation of line n of the other", left_->name(),
       left_->lines(), right_->name(), right_->lines());
}

void PairReader::close_files() {
  for (const LineReader* const reader : {left_.get(), right_.get()}) {
    require(reader == nullptr || reader->lines() > 0, "{} is empty", reader == nullptr ? "" : reader->name());
  }
  if (!tsv_) {
    source_bytes_ += left_->bytes();
    target_bytes_ += right_->bytes();
  }
  left_ = nullptr;
  right_ = nullptr;
  ++file_;
}

std::string PairReader::place() const {
  return left_ == nullptr ? "" : fmt::format("line {} of {}", left_->lines(), left_->name());
}

uint64_t PairReader::source_bytes() const { return source_bytes_ + (tsv_ || left_ == nullptr ? 0 : left_->bytes()); }
uint64_t PairReader::target_bytes() const { return target_bytes_ + (right_ == nullptr ? 0 : right_->bytes()); }

double PairReader::share() const {
  const double now = left_ == nullptr ? 0 : left_->share();
  return now < 0 ? -1 : (static_cast<double>(file_) + now) / static_cast<double>(source_.size());
}

void TextSet::add(const std::string& source_line, const std::string& target_line) {
  source.append(source_line).append("\n");
  target.append(target_line).append("\n");
  ++pairs;
}

TextSet read_text_set(const std::string& source, const std::string& target) {
  TextSet set;
  if (source.empty()) {
    return set;
  }
  PairReader reader({source}, {target}, {});
  std::string left, right;
  int64_t empty = 0;
  while (reader.next(left, right)) {
    require(!reader.cut(), "{} or its translation is longer than {} bytes", reader.place(), LineReader::kLongestLine);
    require(text::valid_utf8(left) && text::valid_utf8(right), "{} or its translation in {} is not valid UTF-8",
            reader.place(), target);
    require(set.source.size() + set.target.size() < kLargestSet, "{} is too large for a validation or test set",
            source);
    empty += left.empty() || right.empty() ? 1 : 0;
    set.add(left, right);
  }
  if (empty > 0) {
    log::warning("{} of {} pairs in {} and {} have an empty side", empty, set.pairs, source, target);
  }
  return set;
}

PairStore::~PairStore() {
  if (file_.open()) {
    ::unlink(writer_.path().c_str());
  }
}

uint64_t PairStore::add(const std::string& source, const std::string& target) {
  const uint64_t place = writer_.size();
  const Record record{static_cast<uint32_t>(source.size()), static_cast<uint32_t>(target.size())};
  writer_.write(&record, sizeof record);
  writer_.write(source);
  writer_.write(target);
  return place;
}

void PairStore::end_writing() {
  writer_.finish(false);
  file_ = open_to_read(writer_.path());
}

void PairStore::read(uint64_t place, std::string& source, std::string& target) const {
  Record record;
  read_at(file_, &record, sizeof record, place, writer_.path());
  source.resize(size_t{record.source} + record.target);
  read_at(file_, source.data(), source.size(), place + sizeof record, writer_.path());
  target = source.substr(record.source);
  source.resize(record.source);
}

}  // namespace tandem::data
