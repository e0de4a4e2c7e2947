#include "train/config.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/parse.h"
#include "train/config_fields.h"

namespace tandem::train {

namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      result += fmt::format("\\u{:04X}", static_cast<int>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

template <class T>
std::string literal(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return quoted(value);
  } else if constexpr (std::is_floating_point_v<T>) {  // the shortest text that reads back as the same number
    std::string text = fmt::format("{}", value);
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  } else if constexpr (std::is_arithmetic_v<T>) {
    return fmt::format("{}", value);
  } else {
    std::vector<std::string> parts;
    parts.reserve(value.size());
    for (const auto& entry : value) {
      parts.push_back(literal(entry));
    }
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }
}

// Collects every key with its value as TOML.
struct Writer {
  template <class T>
  void operator()(const char* key, const T& member, model::Range) {
    values.emplace_back(key, literal(member));
  }
  template <class T>
  void choice(const char* key, const T& member, model::Choices names) {
    values.emplace_back(key, quoted(names.begin()[static_cast<size_t>(member)]));
  }

  void number_or(const char* key, int64_t member, const char* word) {
    values.emplace_back(key, member == 0 ? quoted(word) : literal(member));
  }

  std::vector<std::pair<std::string, std::string>> values;
};

std::vector<std::pair<std::string, std::string>> values_of(TrainConfig config) {
  Writer writer;
  visit_config(config, writer);
  return writer.values;
}

std::string text_of(const model::Range& range) {
  const bool low = range.low > std::numeric_limits<double>::lowest();
  const bool high = range.high < std::numeric_limits<double>::max();
  const std::string lower = low ? fmt::format("{} {}", range.above ? "above" : "at least", range.low) : "";
  const std::string upper = high ? fmt::format("{} {}", range.below ? "below" : "at most", range.high) : "";
  return !low && !high ? "finite" : lower + (low && high ? " and " : "") + upper;
}

// Checks every number against its range.
struct RangeChecker {
  template <class T>
  void operator()(const char* key, const T& member, model::Range range) {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      const auto value = static_cast<double>(member);
      const bool good = (range.above ? value > range.low : value >= range.low) &&
                        (range.below ? value < range.high : value <= range.high);
      if (!good) {
        report.errors.push_back(
            fmt::format("{}: {} must be {}, not {}", report.place_of(key), key, text_of(range), member));
      }
    }
  }
  template <class T>
  void choice(const char*, const T&, model::Choices) {}
  void number_or(const char*, int64_t, const char*) {}

  ConfigReport& report;
};

// Errors separated by newlines; one that begins with a key is reported at the place where that key was set.
void add_problems(const std::string& sentences, const std::string& section, ConfigReport& report) {
  for (const std::string& sentence : split(sentences, '\n')) {
    const std::string word = sentence.substr(0, sentence.find(' '));
    const std::string place = report.place_of(report.places.contains(word) ? word : section + word);
    report.errors.push_back(fmt::format("{}: {}", place, sentence));
  }
}

void check_combinations(const TrainConfig& c, ConfigReport& report) {
  const auto check = [&report](bool good, const char* key, const std::string& sentence) {
    if (!good) {
      report.errors.push_back(fmt::format("{}: {}", report.place_of(key), sentence));
    }
  };
  const bool known_device = c.device == "auto" || c.device == "cpu" || c.device == "cuda" ||
                            (c.device.starts_with("cuda:") && c.device.size() > 5 &&
                             c.device.find_first_not_of("0123456789", 5) == std::string::npos);
  check(known_device, "device", fmt::format("device must be auto, cpu, cuda or cuda:N, not '{}'", c.device));
  check(c.stop.max_steps > 0 || c.stop.max_epochs > 0 || c.stop.max_minutes > 0, "stop.max_steps",
        "the run would never end: set stop.max_steps, stop.max_epochs or stop.max_minutes");
  check(c.stop.patience == 0 || c.validation.every_steps > 0 || c.validation.every_minutes > 0, "stop.patience",
        "stop.patience counts validations: set validation.every_steps or validation.every_minutes");
  check(c.stop.metric == store::Metric::nll || c.validation.decode, "stop.metric",
        fmt::format("stop.metric = \"{}\" needs decoded text: set validation.decode = true", name_of(c.stop.metric)));
  check(c.dist.silence_seconds >= 2 * c.dist.heartbeat_seconds, "dist.silence_seconds",
        fmt::format("dist.silence_seconds = {} must be at least two heartbeats (dist.heartbeat_seconds = {})",
                    c.dist.silence_seconds, c.dist.heartbeat_seconds));
  check(c.micro_batch == 0 || c.micro_batch >= c.model.max_length, "batch.micro_batch",
        fmt::format("batch.micro_batch = {} must hold the longest sentence (model.max_length = {})", c.micro_batch,
                    c.model.max_length));
}

// Reports impossible values and combinations in the whole config.
void check_config(TrainConfig& config, ConfigReport& report) {
  RangeChecker checker{report};
  visit_config(config, checker);
  model::ModelConfig model = config.model;
  for (int64_t* vocabulary : {&model.source_vocabulary, &model.target_vocabulary}) {
    *vocabulary = *vocabulary == 0 ? 32768 : *vocabulary;  // 0 stands for the data's size, which is not known here
  }
  add_problems(problems(model), "model.", report);
  add_problems(problems(optim::with_defaults(config.schedule, config.model.width, config.stop.max_steps)), "schedule.",
               report);
  check_combinations(config, report);
}

}  // namespace

TrainConfig parse_config(const std::string& toml, const std::string& name, const std::vector<std::string>& overrides) {
  TrainConfig config;
  ConfigReport report{name, {}, {}};
  read_toml(toml, config, report);
  read_overrides(overrides, config, report);
  check_config(config, report);
  require(report.errors.empty(), "{}", fmt::join(report.errors, "\n"));
  config.batch.seed = config.seed;
  config.batch.max_length = config.model.max_length;
  return config;
}

TrainConfig load_config(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  TrainConfig config = parse_config(read_file(path, 1 << 20), path.string(), overrides);
  require(!config.data.empty(), "no data given: add data=DIR, a directory made by `tandem prepare`");
  return config;
}

void complete_config(TrainConfig& config, const data::Prepared& data) {
  for (const auto& [wanted, side] : {std::pair(&config.model.source_vocabulary, Side::source),
                                     std::pair(&config.model.target_vocabulary, Side::target)}) {
    const int64_t size = data.subwords(side).size();
    require(*wanted == 0 || *wanted == size, "the config asks for a vocabulary of {} pieces, but {} has {}", *wanted,
            data.directory.string(), size);
    *wanted = size;
  }
  if (!data.joint && config.model.tie == model::Tie::all) {
    log::info("the vocabularies are separate: only target embedding and output are tied (model.tie = \"output\")");
    config.model.tie = model::Tie::output;
  }
  config.batch.seed = config.seed;
  config.batch.max_length = config.model.max_length;
  config.schedule = optim::with_defaults(config.schedule, config.model.width, config.stop.max_steps);
  std::string wrong = problems(config.model);
  const std::string schedule = problems(config.schedule);
  wrong += (wrong.empty() || schedule.empty() ? "" : "\n") + schedule;
  require(wrong.empty(), "{}", wrong);
  require(config.stop.patience == 0 || data.valid.size() > 0,
          "stop.patience needs a validation set; prepare the data with --valid-source and --valid-target");
}

std::string to_toml(const TrainConfig& config) {
  std::string text, section;
  for (const auto& [key, value] : values_of(config)) {
    const size_t dot = key.find('.');
    const std::string here = dot == std::string::npos ? "" : key.substr(0, dot);
    if (here != section) {
      section = here;
      text += fmt::format("\n[{}]\n", section);
    }
    text += fmt::format("{} = {}\n", dot == std::string::npos ? key : key.substr(dot + 1), value);
  }
  return text;
}

ConfigChanges compare_for_resume(const TrainConfig& saved, const TrainConfig& now) {
  static const std::set<std::string> trained_freely = {"model.dropout", "model.attention_dropout",
                                                       "model.activation_dropout"};
  ConfigChanges changes;
  const auto before = values_of(saved), after = values_of(now);
  for (size_t i = 0; i < before.size(); ++i) {
    const std::string& key = before[i].first;
    if (before[i].second == after[i].second) {
      continue;
    }
    const bool refused = key == "seed" || (key.starts_with("model.") && !trained_freely.contains(key));
    (refused ? changes.refused : changes.allowed)
        .push_back(fmt::format("{}: {} -> {}", key, before[i].second, after[i].second));
  }
  return changes;
}

}  // namespace tandem::train
