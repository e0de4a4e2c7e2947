// Translates a stream of lines with bounded memory, and writes its translations.
#pragma once

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "tandem/translation.h"

namespace tandem::decode {

enum class OutputFormat : uint8_t {
  text,    // the best translation of each line
  scores,  // score TAB log-probability TAB text
  n_best,  // line ||| text ||| score ||| log-probability; a line's translations follow each other, best first
};

struct StreamSummary {
  int64_t lines = 0;
  int64_t output_pieces = 0;  // pieces of the best translations, including their end marks
  double seconds = 0;
};

// Translates a window of lines; first_line is the number of the first.
using TranslateWindow =
    std::function<std::vector<std::vector<Translation>>(std::span<const std::string> lines, int64_t first_line)>;

// Reads windows of at most `window` lines (and some megabytes), so that sentences of similar length form batches, and
// gives each window's output to `write`. `next_line` gives the next line without its newline; false = no more.
StreamSummary translate_stream(const TranslateWindow& translate, const std::function<bool(std::string&)>& next_line,
                               int64_t window, OutputFormat format, const std::function<void(std::string_view)>& write);

// The output lines for one input line, each with a newline. `line` counts from 1.
std::string formatted(const std::vector<Translation>& translations, int64_t line, OutputFormat format);

// The destination of a command's text: standard output, or a file that appears completely or not at all.
class TextOutput {
 public:
  // "-" is standard output. A file is written under a temporary name and renamed in finish(); a device or pipe is
  // written directly. Fails at once if it cannot be written.
  explicit TextOutput(const std::string& name);
  ~TextOutput();
  TextOutput(const TextOutput&) = delete;
  TextOutput& operator=(const TextOutput&) = delete;

  void write(std::string_view text);
  void finish();

  bool is_file() const { return file_ != nullptr; }

 private:
  std::string name_;
  std::filesystem::path path_;        // the file's final name
  std::unique_ptr<FileWriter> file_;  // a regular file
  std::FILE* stream_ = nullptr;       // anything else
};

}  // namespace tandem::decode
