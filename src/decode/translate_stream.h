// Translates a stream of lines as it comes, with bounded memory.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "decode/line_translator.h"

namespace tandem {

enum class OutputFormat : uint8_t {
  text,    // the best translation of each line
  scores,  // score TAB log-probability TAB text
  n_best,  // line ||| text ||| score ||| log-probability; a line's translations follow each other, best first
};

struct StreamSummary {
  int64_t lines = 0;
  int64_t output_pieces = 0;
  double seconds = 0;
};

// Reads windows of at most `window` lines (and some megabytes), so that batches can be made of sentences of similar
// length, and hands each window's output to `write`. `next_line` gives the next line without its end; false = no more.
StreamSummary translate_stream(LineTranslator& translator, const std::function<bool(std::string&)>& next_line,
                               int64_t window, OutputFormat format, const std::function<void(std::string_view)>& write);

// The lines of one translated line, each with its line end. `line` counts from 1.
std::string formatted(const std::vector<Translation>& translations, int64_t line, OutputFormat format);

}  // namespace tandem
