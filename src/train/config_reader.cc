#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "core/error.h"
#include "core/parse.h"
#include "text/cleaning.h"
#include "train/config_fields.h"

namespace tandem::train {

namespace {

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// The known key that the user most likely meant: a similar spelling, or the right name in the wrong section.
std::string nearest(const std::string& key, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, key.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t moved = edit_distance(last_part(key), last_part(candidate)) + 1;
    const size_t distance = std::min(edit_distance(key, candidate), moved);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

// Reads the members that one TOML table sets.
class Reader {
 public:
  // raw_text: for overrides, each key's text as typed; a string member takes it even if it looks like a number.
  Reader(const toml::table& table, std::map<std::string, std::string> raw_text, ConfigReport& report)
      : table_(table), raw_(std::move(raw_text)), report_(report) {}

  template <class T>
  void operator()(const char* key, T& member, model::Range) {
    if (const toml::node* node = take(key)) {
      const auto value = value_of<T>(*node, key);
      if (!value) {
        return wrong_type(key, *node, kTypeName<T>);
      }
      if constexpr (std::is_same_v<T, std::string>) {  // otherwise the config could not be written and read again
        if (!text::valid_utf8(*value)) {
          report_.errors.push_back(fmt::format("{}: {} must be UTF-8 text", report_.place_of(key), key));
        }
      }
      member = *value;
    }
  }

  template <class T>
  void choice(const char* key, T& member, model::Choices names) {
    const toml::node* node = take(key);
    if (node == nullptr) {
      return;
    }
    const auto text = value_of<std::string>(*node, key);
    const auto found = std::find(names.begin(), names.end(), text.value_or(""));
    if (found == names.end()) {
      report_.errors.push_back(fmt::format("{}: {} must be one of {}, not {}", report_.place_of(key), key,
                                           fmt::join(names, ", "), shown(*node)));
    } else {
      member = static_cast<T>(found - names.begin());
    }
  }

  void number_or(const char* key, int64_t& member, const std::string& word) {
    const toml::node* node = take(key);
    if (node == nullptr) {
      return;
    }
    const auto number = value_of<int64_t>(*node, key);
    if (number && *number > 0) {
      member = *number;
    } else if (node->value_exact<std::string>() == word) {
      member = 0;
    } else {
      wrong_type(key, *node, fmt::format("\"{}\" or a whole number of at least 1", word).c_str());
    }
  }

  // The model's preset replaces all its numbers, so it must be read before them.
  void preset(model::ModelConfig& model) {
    const toml::node* node = take("model.preset");
    if (node == nullptr) {
      return;
    }
    const auto name = value_of<std::string>(*node, "model.preset");
    if (!name) {
      return wrong_type("model.preset", *node, "a string");
    }
    try {
      model::ModelConfig chosen = tandem::model::preset(*name);
      chosen.source_vocabulary = model.source_vocabulary;
      chosen.target_vocabulary = model.target_vocabulary;
      model = chosen;
    } catch (const Error& error) {
      report_.errors.push_back(fmt::format("{}: model.preset: {}", report_.place_of("model.preset"), error.what()));
    }
  }

  void report_unknown_keys() { unknown_keys(table_, ""); }

  const toml::node* take(const std::string& key) {
    known_.push_back(key);
    const toml::node* node = table_.at_path(key).node();
    if (node != nullptr) {
      report_.places[key] = place(*node, key);
    }
    return node;
  }

 private:
  std::string place(const toml::node& node, const std::string& key) const {
    const auto text = raw_.find(key);
    return text != raw_.end() ? fmt::format("'{}={}'", key, text->second)
                              : fmt::format("{}:{}", report_.file, node.source().begin.line);
  }

  template <class T>
  std::optional<T> value_of(const toml::node& node, const std::string& key) const {
    if constexpr (std::is_same_v<T, std::string>) {
      const auto text = raw_.find(key);
      return node.is_string() || text == raw_.end() ? node.value_exact<std::string>() : text->second;
    } else if constexpr (std::is_same_v<T, bool>) {
      return node.value_exact<bool>();
    } else if constexpr (std::is_integral_v<T>) {
      const auto value = node.value_exact<int64_t>();
      return value && std::in_range<T>(*value) ? std::optional<T>(static_cast<T>(*value)) : std::nullopt;
    } else if constexpr (std::is_floating_point_v<T>) {
      const auto value = node.is_number() ? node.value<double>() : std::nullopt;
      return value ? std::optional<T>(static_cast<T>(*value)) : std::nullopt;
    } else {
      return list_of<T>(node, key);
    }
  }

  template <class List>
  std::optional<List> list_of(const toml::node& node, const std::string& key) const {
    if (!node.is_array()) {
      return std::nullopt;
    }
    List list;
    for (const toml::node& entry : *node.as_array()) {
      const auto value = value_of<typename List::value_type>(entry, key);
      if (!value) {
        return std::nullopt;
      }
      list.push_back(*value);
    }
    return list;
  }

  template <class T>
  static constexpr const char* kTypeName = std::is_same_v<T, std::string> ? "a string"
                                           : std::is_same_v<T, bool>      ? "true or false"
                                           : std::is_unsigned_v<T>  ? "a whole number from 0 to 9223372036854775807"
                                           : std::is_same_v<T, int> ? "a whole number of at most 31 bits"
                                           : std::is_integral_v<T>  ? "a whole number"
                                           : std::is_floating_point_v<T> ? "a number"
                                                                         : "a list of numbers";

  static std::string shown(const toml::node& node) {
    if (node.is_table()) {
      return "a section";
    }
    std::ostringstream text;
    node.visit([&text](const auto& value) { text << value; });
    return text.str();
  }

  void wrong_type(const std::string& key, const toml::node& node, const char* wanted) {
    report_.errors.push_back(fmt::format("{}: {} must be {}, not {}", report_.place_of(key), key, wanted, shown(node)));
  }

  void unknown_keys(const toml::table& table, const std::string& prefix) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + std::string(name.str());
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) {
        continue;
      }
      if (node.is_table() && std::count(key.begin(), key.end(), '.') < 2) {
        unknown_keys(*node.as_table(), key + ".");
        continue;
      }
      const std::string guess = nearest(key, known_);
      report_.errors.push_back(fmt::format("{}: unknown key '{}'{}", place(node, key), key,
                                           guess.empty() ? "" : fmt::format("; did you mean '{}'?", guess)));
    }
  }

  const toml::table& table_;
  std::map<std::string, std::string> raw_;
  ConfigReport& report_;
  std::vector<std::string> known_;
};

void read_table(const toml::table& table, std::map<std::string, std::string> raw_text, TrainConfig& config,
                ConfigReport& report) {
  Reader reader(table, std::move(raw_text), report);
  reader.preset(config.model);
  visit_config(config, reader);
  reader.report_unknown_keys();
}

// Tables in tables are destroyed level by level on the stack. toml++ bounds how deep brackets go, but not keys, so that
// a line of 100,000 dots would end the program.
void require_flat(const std::string& toml, const std::string& place) {
  constexpr int64_t kMostDots = 64;
  std::istringstream lines(toml);
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(" \t");
    require(begin == std::string::npos || line[begin] == '#' || std::count(line.begin(), line.end(), '.') <= kMostDots,
            "{}: a line has more than {} dots; keys have at most one", place, kMostDots);
  }
}

// Inserts the text as a TOML value or, if it is not one, as a string.
void insert_override(toml::table& table, const std::string& key, const std::string& text) {
  toml::table* section = &table;
  std::string name = key;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.')) {
    section = section->insert(name.substr(0, dot), toml::table{}).first->second.as_table();
    require(section != nullptr, "'{}' is given both as a key and as a section", key);
    name = name.substr(dot + 1);
  }
  try {
    section->insert_or_assign(name, *toml::parse("value = " + text)["value"].node());
  } catch (const toml::parse_error&) {
    const bool broken = text.starts_with('[') || text.starts_with('"') || text.starts_with('\'');
    require(!broken, "'{}={}' is not a TOML value: check its quotes and brackets", key, text);
    section->insert_or_assign(name, text);
  }
}

}  // namespace

void read_toml(const std::string& toml, TrainConfig& config, ConfigReport& report) {
  require_flat(toml, report.file);
  try {
    const toml::table table = toml::parse(toml);
    read_table(table, {}, config, report);
  } catch (const toml::parse_error& error) {
    report.errors.push_back(
        fmt::format("{}:{}: not TOML: {}", report.file, error.source().begin.line, std::string(error.description())));
  }
}

void read_overrides(const std::vector<std::string>& overrides, TrainConfig& config, ConfigReport& report) {
  toml::table table;
  std::map<std::string, std::string> raw;
  for (const std::string& override : overrides) {
    const size_t equals = override.find('=');
    if (equals == std::string::npos || equals == 0) {
      report.errors.push_back(fmt::format("'{}' is not of the form key=value", override));
      continue;
    }
    const std::string key = override.substr(0, equals), text = override.substr(equals + 1);
    try {
      require_flat(key, "a setting");
      insert_override(table, key, text);
      raw[key] = text;
    } catch (const Error& error) {
      report.errors.emplace_back(error.what());
    }
  }
  read_table(table, std::move(raw), config, report);
}

}  // namespace tandem::train
