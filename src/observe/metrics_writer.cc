#include "observe/metrics_writer.h"

#include <fstream>
#include <map>
#include <string_view>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "observe/fields.h"
#include "observe/segments.h"

namespace tandem::observe {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostAlike = 2;  // closed segments of one coarseness that are kept as they are

const fs::path& with_directory(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  require(!error, "cannot make the directory {}: {}", path.parent_path().string(), error.message());
  return path;
}

struct Cut {
  int64_t bytes = 0;   // size to keep: up to and including the last whole record
  bool found = false;  // there is a record of a later step
};

Cut find_cut(const fs::path& path, int64_t last) {
  std::ifstream in(path, std::ios::binary);
  require(in.is_open(), "cannot read {}: check that it is a readable file", path.string());
  Cut cut;
  int64_t offset = 0;
  for (std::string text; std::getline(in, text);) {
    const bool ended = !in.eof();
    offset += static_cast<int64_t>(text.size()) + (ended ? 1 : 0);
    const std::optional<Record> record = parse_record(text);
    if (record && record->step > last) {
      cut.found = true;
      return cut;
    }
    cut.bytes = record && ended ? offset : cut.bytes;
  }
  return cut;
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  require(!error, "cannot remove {}: {}", path.string(), error.message());
}

// Merges neighbouring records: holds back one of each kind until the next one comes.
class Thinner {
 public:
  explicit Thinner(FileWriter& out) : out_(out) {}

  // Other kinds are not parsed: a sample in another alphabet would take ten times as long.
  void line(std::string_view text) {
    constexpr std::string_view kBegin = "{\"kind\":\"";
    const std::string_view kind = text.substr(0, kBegin.size()) == kBegin ? text.substr(kBegin.size()) : "";
    const bool windows = kind.starts_with("train\"") || kind.starts_with("probe\"");
    if (std::optional<Record> record = windows ? parse_record(text) : std::nullopt) {
      pair(std::move(*record));
    } else if (!windows && !kind.empty() && text.ends_with('}')) {
      if (kind.starts_with("setup\"")) {
        flush();  // records before and after a start are not merged
      }
      write(text);
    }
  }

  void flush() {
    for (auto& [kind, record] : held_) {
      write(to_json(record));
    }
    held_.clear();
  }

 private:
  void pair(Record record) {
    const auto held = held_.find(record.kind);
    if (held == held_.end()) {
      held_.emplace(record.kind, std::move(record));
      return;
    }
    const bool rising = record.time >= held->second.time &&
                        (record.kind == "probe" ? record.step >= held->second.step : record.step > held->second.step);
    if (rising) {
      write(to_json(merged(held->second, record)));
    } else {
      write(to_json(held->second));
      write(to_json(record));
    }
    held_.erase(held);
  }

  void write(std::string_view text) {
    out_.write(text);
    out_.write("\n");
  }

  FileWriter& out_;
  std::map<std::string, Record> held_;
};

}  // namespace

MetricsWriter::MetricsWriter(const fs::path& path, int64_t last, int64_t segment_bytes)
    : path_(with_directory(path)), segment_bytes_(segment_bytes) {
  file_.emplace(path_);
  cut_after(last);
}

void MetricsWriter::write(const Record& record) {
  file_->append(to_json(record) + '\n');
  if (file_->size() >= segment_bytes_) {
    close_segment();
  }
}

void MetricsWriter::cut_after(int64_t last) {
  const auto [closed, leftovers] = list_segments(path_);
  for (const fs::path& leftover : leftovers) {
    remove_file(leftover);
  }
  size_t kept = 0;
  Cut cut;
  while (kept < closed.size() && !(cut = find_cut(closed[kept].path, last)).found) {
    ++kept;
  }
  if (kept == closed.size()) {
    file_->truncate(find_cut(path_, last).bytes);
    return;
  }
  // The newest are removed first, so that even a killed process leaves the run up to some step.
  file_->truncate(0);
  for (size_t i = closed.size() - 1; i > kept; --i) {
    remove_file(closed[i].path);
  }
  if (cut.bytes == 0) {
    remove_file(closed[kept].path);
    return;
  }
  std::error_code error;
  fs::resize_file(closed[kept].path, static_cast<uintmax_t>(cut.bytes), error);
  require(!error, "cannot shorten {}: {}", closed[kept].path.string(), error.message());
}

// If the system refuses, the file just keeps growing.
void MetricsWriter::close_segment() {
  try {
    const int64_t number = list_segments(path_).next();
    file_->sync();
    const fs::path closed = segment_path(path_, number, number);
    fs::rename(path_, closed);
    try {
      file_.emplace(path_, true);
    } catch (const std::exception&) {
      fs::rename(closed, path_);
      file_.emplace(path_);
      throw;
    }
    thin_once();  // once is enough: the finest are due at every second closing, the next at every fourth, ...
  } catch (const std::exception& error) {
    log::warning("the metrics are not put in order: {}; training goes on", error.what());
    segment_bytes_ *= 2;  // no retry at once
  }
}

void MetricsWriter::thin_once() {
  std::map<int64_t, std::vector<Segment>> alike;  // key: number of files held; oldest first
  for (const Segment& segment : list_segments(path_).closed) {
    alike[segment.files()].push_back(segment);
  }
  for (const auto& [files, segments] : alike) {
    // Merges neighbours only, in case someone removed a file between them.
    if (segments.size() > kMostAlike && segments[0].last + 1 == segments[1].first) {
      const fs::path partial = partial_path(path_);
      thin({segments[0].path, segments[1].path}, partial);
      fs::rename(partial, segment_path(path_, segments[0].first, segments[1].last));
      sync_directory(path_.parent_path());
      remove_file(segments[0].path);
      remove_file(segments[1].path);
      return;
    }
  }
}

void thin(const std::vector<std::filesystem::path>& files, const std::filesystem::path& out) {
  FileWriter writer(out);
  Thinner thinner(writer);
  for (const std::filesystem::path& path : files) {
    std::ifstream in(path, std::ios::binary);
    require(in.is_open(), "cannot read {}: check that it is a readable file", path.string());
    for (std::string text; std::getline(in, text);) {
      thinner.line(text);
    }
  }
  thinner.flush();
  writer.finish();
}

}  // namespace tandem::observe
