#include "decode/translate_stream.h"

#include <fmt/format.h>

#include "core/stopwatch.h"

namespace tandem::decode {

namespace {

constexpr size_t kWindowBytes = size_t{16} << 20;

using NextLine = std::function<bool(std::string&)>;

// None at the end of the input.
std::vector<std::string> read_window(const NextLine& next_line, int64_t window) {
  std::vector<std::string> lines;
  std::string line;
  size_t bytes = 0;
  while (static_cast<int64_t>(lines.size()) < window && bytes < kWindowBytes && next_line(line)) {
    bytes += line.size();
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

std::string formatted(const std::vector<Translation>& translations, int64_t line, OutputFormat format) {
  const Translation& best = translations.front();
  std::string text;
  switch (format) {
    case OutputFormat::text:
      return best.text + "\n";
    case OutputFormat::scores:
      return fmt::format("{:.6f}\t{:.6f}\t{}\n", best.score, best.log_probability, best.text);
    case OutputFormat::n_best:
      for (const Translation& translation : translations) {
        text += fmt::format("{} ||| {} ||| {:.6f} ||| {:.6f}\n", line, translation.text, translation.score,
                            translation.log_probability);
      }
  }
  return text;
}

StreamSummary translate_stream(const TranslateWindow& translate, const NextLine& next_line, int64_t window,
                               OutputFormat format, const std::function<void(std::string_view)>& write) {
  const Stopwatch watch;
  StreamSummary summary;
  for (std::vector<std::string> lines = read_window(next_line, window); !lines.empty();
       lines = read_window(next_line, window)) {
    std::string output;
    for (const std::vector<Translation>& translations : translate(lines, summary.lines + 1)) {
      summary.output_pieces += translations.front().tokens;
      output += formatted(translations, ++summary.lines, format);
    }
    write(output);
  }
  summary.seconds = watch.seconds();
  return summary;
}

}  // namespace tandem::decode
