#include "observe/thinning.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "core/file.h"

namespace tandem {

namespace {

enum class Rule : uint8_t { last, sum, most, by_steps, by_tokens, by_step_seconds, by_seconds };

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Rule train_rule(std::string_view name) {
  if (one_of(name, {"elapsed_seconds", "learning_rate", "gradient_norm", "clipped_gradient_norm", "epoch"})) {
    return Rule::last;
  }
  if (one_of(name, {"loss", "nll", "accuracy"})) {
    return Rule::by_tokens;
  }
  if (one_of(name, {"pairs", "source_tokens", "target_tokens"})) {
    return Rule::by_steps;
  }
  if (name.ends_with("_per_second")) {
    return Rule::by_step_seconds;
  }
  const bool sum =
      name.ends_with("_seconds") || one_of(name, {"steps", "skipped_steps", "records", "unfinite", "flops", "rows",
                                                  "dead_rows", "sent_bytes", "tokens", "received_bytes"});
  return sum ? Rule::sum : name == "peak_memory_bytes" ? Rule::most : Rule::last;
}

Rule probe_rule(std::string_view name) {
  const bool sum = name == "seconds" || name.ends_with("_seconds") || name.ends_with("written_bytes") ||
                   name.ends_with("received_bytes") || name.ends_with("sent_bytes") || name.ends_with("_packets") ||
                   name.ends_with("_dropped");
  const bool mean = one_of(name, {"gpu_power_watts", "gpu_sm_clock_mhz", "gpu_memory_clock_mhz",
                                  "gpu_temperature_celsius", "gpu_utilisation_percent", "cpu_busy", "load"});
  return sum ? Rule::sum : mean ? Rule::by_seconds : Rule::last;
}

double known(const Record& record, const std::string& name, double otherwise) {
  const double value = record.number(name).value_or(otherwise);
  return std::isfinite(value) && value >= 0 ? value : otherwise;
}

// What a mean of this record is a mean over.
double weight(const Record& record, Rule rule) {
  const double steps = known(record, "steps", 1);
  return rule == Rule::by_steps          ? steps
         : rule == Rule::by_tokens       ? steps * known(record, "target_tokens", 1)
         : rule == Rule::by_step_seconds ? known(record, "step_seconds", steps)
                                         : known(record, "seconds", 1);
}

double combined(double a, double b, Rule rule, const Record& first, const Record& second) {
  if (rule == Rule::last || !std::isfinite(a) || !std::isfinite(b)) {
    return rule == Rule::last || std::isfinite(b) || !std::isfinite(a) ? b : a;
  }
  if (rule == Rule::sum || rule == Rule::most) {
    return rule == Rule::sum ? a + b : std::max(a, b);
  }
  const double wa = weight(first, rule), wb = weight(second, rule);
  return wa + wb > 0 ? a * (wa / (wa + wb)) + b * (wb / (wa + wb)) : b;
}

// Files of earlier versions have no counts in their train records.
Record counted(Record record) {
  if (record.kind != "train") {
    return record;
  }
  if (!record.number("step_seconds")) {
    double seconds = 0;
    for (const char* part : {"compute_seconds", "communication_seconds", "data_seconds"}) {
      seconds += known(record, part, 0);
    }
    record.add("step_seconds", seconds);
  }
  if (!record.number("steps")) {
    record.add("steps", std::round(known(record, "steps_per_second", 0) * known(record, "step_seconds", 0)));
  }
  if (!record.number("records")) {
    const auto bad = [&](const char* name) { return !std::isfinite(record.number(name).value_or(0)); };
    record.add("records", 1).add("unfinite", bad("loss") || bad("nll") ? 1 : 0);
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

Record to_record(const MetricsLine& line) {
  Record record{.kind = std::string(line.kind()), .step = line.step(), .time = line.time()};
  for (const MetricsLine::Field& field : line.fields()) {
    if (one_of(field.name, {"kind", "step", "time"})) {
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

bool is_sum(const std::string& kind, const std::string& name) {
  return (kind == "probe" ? probe_rule(name) : train_rule(name)) == Rule::sum;
}

Record merged(const Record& first_record, const Record& second_record) {
  const Record first = counted(first_record), second = counted(second_record);
  Record both{.kind = second.kind, .step = second.step, .time = second.time};
  for (const auto& [name, value] : second.fields) {
    const std::optional<double> a = first.number(name), b = second.number(name);
    if (a && b) {
      const Rule rule = second.kind == "probe" ? probe_rule(name) : train_rule(name);
      both.add(name, combined(*a, *b, rule, first, second));
    } else {
      both.fields.emplace_back(name, value);
    }
  }
  for (const auto& [name, value] : first.fields) {  // what only the first has: names that are said once, and the like
    const bool of_a_moment = std::holds_alternative<std::string>(value) && name == "gpu_throttle";
    if (!of_a_moment && !second.number(name) && second.text(name) == nullptr) {
      both.fields.emplace_back(name, value);
    }
  }
  return both;
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

}  // namespace tandem
