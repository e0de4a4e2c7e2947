#include "store/stored_config.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include "core/error.h"
#include "model/config_fields.h"

namespace tandem::store {

namespace {

using Values = std::map<std::string, std::string>;

// "model.KEY" -> the value's text. Training writes one `KEY = VALUE` a line under a line `[model]`.
Values model_table(const std::string& toml) {
  Values values;
  std::istringstream lines(toml);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) {
      inside = line == "[model]";
    } else if (const size_t equals = line.find(" = "); inside && equals != std::string::npos) {
      values["model." + line.substr(0, equals)] = line.substr(equals + 3);
    }
  }
  return values;
}

// Sets each member to its value and takes it out of the table.
class StoredReader {
 public:
  StoredReader(Values& values, const std::string& name) : values_(values), name_(name) {}

  template <class T>
  void operator()(const char* key, T& member, model::Range) {
    read(key, [&member](const std::string& text) {
      if constexpr (std::is_same_v<T, bool>) {
        member = text == "true";
        return member || text == "false";
      } else {
        const char* end = text.data() + text.size();
        const auto result = std::from_chars(text.data(), end, member);
        return result.ec == std::errc() && result.ptr == end;
      }
    });
  }

  template <class T>
  void choice(const char* key, T& member, model::Choices names) {
    read(key, [&](const std::string& text) {
      const auto found =
          std::ranges::find_if(names, [&](const char* one) { return text == fmt::format("\"{}\"", one); });
      member = found == names.end() ? member : static_cast<T>(found - names.begin());
      return found != names.end();
    });
  }

 private:
  template <class Parse>
  void read(const char* key, const Parse& parse) {
    if (const auto value = values_.find(key); value != values_.end()) {
      require(parse(value->second), "{}: {} = {} is not a value that this version knows", name_, key, value->second);
      values_.erase(value);
    }
  }

  Values& values_;
  const std::string& name_;
};

}  // namespace

model::ModelConfig read_model_config(const std::string& toml, const std::string& name) {
  Values values = model_table(toml);
  require(!values.empty(), "{} has no [model] table", name);
  model::ModelConfig config;
  StoredReader reader(values, name);
  model::visit_model(config, reader);
  require(values.empty(), "{}: {} is not a setting that this version knows", name, values.begin()->first);
  return config;
}

}  // namespace tandem::store
