#include "observe/thinning.h"

#include <fstream>
#include <map>
#include <string_view>

#include "core/error.h"
#include "core/file.h"
#include "observe/fields.h"
#include "observe/metrics_line.h"

namespace tandem::observe {

namespace {

Record to_record(const MetricsLine& line) {
  Record record{.kind = std::string(line.kind()), .step = line.step(), .time = line.time()};
  for (const MetricsLine::Field& field : line.fields()) {
    if (field.name == "kind" || field.name == "step" || field.name == "time") {
      continue;
    }
    if (field.text.empty() && field.number) {
      record.add(std::string(field.name), *field.number);
    } else {
      record.add(std::string(field.name), std::string(field.text));
    }
  }
  return record;
}

// Holds back a record of each kind until its neighbour comes.
class Thinner {
 public:
  explicit Thinner(FileWriter& out) : out_(out) {}

  // Other kinds need not be understood: a sample in another alphabet would take ten times as long.
  void line(std::string_view text) {
    constexpr std::string_view kBegin = "{\"kind\":\"";
    const std::string_view kind = text.substr(0, kBegin.size()) == kBegin ? text.substr(kBegin.size()) : "";
    const bool windows = kind.starts_with("train\"") || kind.starts_with("probe\"");
    if (windows && line_.parse(text)) {
      pair(to_record(line_));
    } else if (!windows && !kind.empty() && text.ends_with('}')) {
      if (kind.starts_with("setup\"")) {
        flush();  // the start before and the one after it are not mixed
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
  MetricsLine line_;
  std::map<std::string, Record> held_;
};

}  // namespace

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
