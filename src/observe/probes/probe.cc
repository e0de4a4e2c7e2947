#include "observe/probes/probe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>

namespace tandem::observe {

namespace {

constexpr size_t kMostBytes = 1 << 18;
constexpr std::string_view kSpaces = " \t\r\n\v\f";

}  // namespace

void add_known(Record& record, const std::string& name, std::optional<double> value) {
  if (value) {
    record.add(name, *value);
  }
}

std::string read_pseudo_file(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe in its place does not block
  if (file < 0) {
    return "";
  }
  std::string text(1 << 12, '\0');
  size_t held = 0;
  for (;;) {
    if (held == text.size()) {
      text.resize(2 * text.size());
    }
    const ssize_t got = read(file, text.data() + held, text.size() - held);
    if (got <= 0 && !(got < 0 && errno == EINTR)) {
      break;
    }
    held += static_cast<size_t>(got > 0 ? got : 0);
    if (held >= kMostBytes) {
      break;
    }
  }
  close(file);
  text.resize(held);
  return text;
}

std::string_view next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view next_word(std::string_view& text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) {
    text = {};
    return {};
  }
  text.remove_prefix(begin);
  const std::string_view word = text.substr(0, text.find_first_of(kSpaces));
  text.remove_prefix(word.size());
  return word;
}

std::optional<double> to_number(std::string_view word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool good = error == std::errc() && end == word.data() + word.size() && std::isfinite(value) && value >= 0;
  return good ? std::optional(value) : std::nullopt;
}

}  // namespace tandem::observe
