#include "decode/translate_stream.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/stopwatch.h"

namespace tandem::decode {

namespace {

constexpr size_t kWindowBytes = size_t{16} << 20;

using NextLine = std::function<bool(std::string&)>;

// Reads the next lines; none at the end of the input.
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

TextOutput::TextOutput(const std::string& name) : name_(name == "-" ? "standard output" : name) {
  if (name == "-") {
    stream_ = stdout;
    return;
  }
  // Follows links, so that a link stays one. Absolute, so that there is a directory for the temporary file. A pipe
  // (/dev/stdout) has no path of its own.
  const auto type = std::filesystem::status(name).type();
  const bool a_file = type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found;
  require(type != std::filesystem::file_type::not_found || !std::filesystem::is_symlink(name),
          "cannot write {}: it is a link that leads nowhere", name);
  path_ = a_file ? std::filesystem::weakly_canonical(std::filesystem::absolute(name)) : std::filesystem::path(name);
  require(type != std::filesystem::file_type::directory, "cannot write {}: it is a directory", name);
  if (a_file) {
    require(std::filesystem::is_directory(path_.parent_path()), "cannot write {}: its directory does not exist", name);
    file_ = std::make_unique<FileWriter>(path_.parent_path() / fmt::format(".{}.partial", path_.filename().string()));
  } else {
    stream_ = std::fopen(path_.c_str(), "w");
    require(stream_ != nullptr, "cannot write {}: {}", name, std::strerror(errno));
  }
}

TextOutput::~TextOutput() {
  if (stream_ != nullptr && stream_ != stdout) {
    std::fclose(stream_);
  }
}

void TextOutput::write(std::string_view text) {
  if (file_) {
    file_->write(text);
    return;
  }
  const bool written = std::fwrite(text.data(), 1, text.size(), stream_) == text.size() && std::fflush(stream_) == 0;
  require(written, "cannot write to {}: {}", name_, std::strerror(errno));
}

void TextOutput::finish() {
  if (file_) {
    file_->finish();
    std::filesystem::rename(file_->path(), path_);
    sync_directory(path_.parent_path());
  }
}

}  // namespace tandem::decode
