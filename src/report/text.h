// Texts from outside (sentences, file names, configs), made fit for a place where people read them.
#pragma once

#include <string>

namespace tandem::report {

// Bytes that are not UTF-8 become U+FFFD.
std::string repaired_utf8(const std::string& text);
// One line of printable text: no control character reaches a terminal.
std::string printable(const std::string& text);
// One line of text without meaning to Markdown or HTML.
std::string markdown_escaped(const std::string& text);

}  // namespace tandem::report
