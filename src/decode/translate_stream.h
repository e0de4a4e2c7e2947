// Translates a stream of lines as it comes, with bounded memory.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/translation.h"

namespace tandem::decode {

enum class OutputFormat : uint8_t {
  text,    // the best translation of each line
  scores,  // score TAB log-probability TAB text
  n_best,  // line ||| text ||| score ||| log-probability; a line's translations follow each other, best first
};

struct StreamSummary {
  int64_t lines = 0;
  int64_t output_pieces = 0;  // of the best translations, with their end marks
  double seconds = 0;
};

// Translates a window of lines, of which the first has this number.
using TranslateWindow =
    std::function<std::vector<std::vector<Translation>>(std::span<const std::string> lines, int64_t first_line)>;

// Reads windows of at most `window` lines (and some megabytes), so that batches can be made of sentences of similar
// length, and hands each window's output to `write`. `next_line` gives the next line without its end; false = no more.
StreamSummary translate_stream(const TranslateWindow& translate, const std::function<bool(std::string&)>& next_line,
                               int64_t window, OutputFormat format, const std::function<void(std::string_view)>& write);

// The lines of one translated line, each with its line end. `line` counts from 1.
std::string formatted(const std::vector<Translation>& translations, int64_t line, OutputFormat format);

}  // namespace tandem::decode
