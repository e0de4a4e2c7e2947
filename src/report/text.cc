#include "report/text.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace tandem::report {

std::string repaired_utf8(const std::string& text) {
  using Json = nlohmann::json;  // its dump() replaces what is not UTF-8
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

std::string printable(const std::string& text) {
  std::string result;
  const std::string valid = repaired_utf8(text);
  for (size_t i = 0; i < valid.size(); ++i) {
    const auto byte = static_cast<unsigned char>(valid[i]);
    const bool c1 = byte == 0xC2 && i + 1 < valid.size() && static_cast<unsigned char>(valid[i + 1]) < 0xA0;
    if (byte < 0x20 || byte == 0x7F || c1) {
      result += byte == '\n' || byte == '\t' ? " " : "\xEF\xBF\xBD";
      i += c1 ? 1 : 0;
    } else {
      result += valid[i];
    }
  }
  return result;
}

std::string markdown_escaped(const std::string& text) {
  std::string result;
  for (const char c : printable(text)) {
    if (c == '<' || c == '>' || c == '&') {
      result += c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;";
    } else {
      result += std::string_view("\\`*_{}[]#|!~").find(c) != std::string_view::npos ? "\\" : "";
      result += c;
    }
  }
  return result;
}

}  // namespace tandem::report
