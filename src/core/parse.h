// Parses small texts, and compares words.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::inline core {

// The whole text as a number; nothing if it is not a number or does not fit the type.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

// The parts between the separators. As with lines of a file, a separator at the end begins no further part.
std::vector<std::string> split(const std::string& text, char separator);

// Whether brackets and braces outside of JSON's texts are nested at most 32 deep. Whoever parses JSON that another
// program may have written asks this first, because a JSON value is copied and shown level by level on the stack.
bool is_shallow_json(std::string_view json);

// Levenshtein distance: the number of letters to insert, delete or change.
size_t edit_distance(std::string_view from, std::string_view to);

}  // namespace tandem::inline core
