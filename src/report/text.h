// Makes texts from outside (sentences, file names, configs) fit for places where people read them.
#pragma once

#include <string>

namespace tandem::report {

// Bytes that are not UTF-8 become U+FFFD.
std::string repaired_utf8(const std::string& text);
// One line of printable text: no control character reaches a terminal.
std::string printable(const std::string& text);
// One line of text that Markdown and HTML show as it is.
std::string markdown_escaped(const std::string& text);

}  // namespace tandem::report
