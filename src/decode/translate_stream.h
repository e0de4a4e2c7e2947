// A stream of lines that is translated as it comes, with bounded memory, and where its translations go.
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

// Where a command's text goes: standard output, or a file that appears complete or not at all.
class TextOutput {
 public:
  // "-" is standard output. A file is written aside and takes its name in finish(); a device or pipe is written to as
  // it is. Fails at once when it cannot be written.
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
