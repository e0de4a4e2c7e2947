#include "dist/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/error.h"

namespace tandem::dist {
namespace {

std::optional<int> to_number(std::string_view text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end && value >= 0 && !text.empty() ? std::optional(value) : std::nullopt;
}

}  // namespace

std::string variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

std::optional<int> optional_number_variable(const std::string& name) {
  const std::string text = variable(name);
  if (text.empty()) {
    return std::nullopt;
  }
  const auto value = to_number(text);
  require(value.has_value(), "{} is '{}', not a whole number", name, text);
  return value;
}

int number_variable(const std::string& name) {
  const auto value = optional_number_variable(name);
  require(value.has_value(), "{} is not set, though other variables of its launcher are: set all or none", name);
  return *value;
}

std::string first_slurm_host(const std::string& list) {
  const size_t bracket = list.find('[');
  const size_t comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) {
    return list.substr(0, comma);
  }
  const size_t close = list.find(']', bracket);
  require(close != std::string::npos, "SLURM's list of nodes '{}' has no closing bracket", list);
  const size_t end = std::min(list.find_first_of(",-]", bracket), close);
  const size_t next = std::min(list.find(',', close), list.size());
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) +
         list.substr(close + 1, next - close - 1);
}

std::vector<int> slurm_tasks(const std::string& list) {
  std::vector<int> tasks;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string part = list.substr(begin, end - begin);
    const size_t times = part.find("(x");
    const auto count = to_number(std::string_view(part).substr(0, times));
    const bool repeated = times != std::string::npos && part.back() == ')';
    const auto nodes = repeated ? to_number(std::string_view(part).substr(times + 2, part.size() - times - 3))
                                : std::optional(times == std::string::npos ? 1 : -1);
    require(count && nodes && *nodes >= 0 && tasks.size() + *nodes <= 1U << 20,
            "SLURM's task counts by node, '{}', are malformed", list);
    tasks.insert(tasks.end(), *nodes, *count);
    begin = end + 1;
  }
  return tasks;
}

std::string hosts_of_mpi_uri(const std::string& uri) {
  const std::string before = "tcp://";
  const size_t begin = uri.find(before);
  const size_t end = begin == std::string::npos ? begin : uri.find_first_of(":;", begin + before.size());
  return end == std::string::npos ? "" : uri.substr(begin + before.size(), end - begin - before.size());
}

}  // namespace tandem::dist
