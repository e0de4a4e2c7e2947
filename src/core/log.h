// Messages for the user, written to standard error and, once one is opened, to the run's log file. Results that a user
// may pipe (translations, scores) go to standard output instead.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

namespace tandem::inline core::log {

void write_info(const std::string& line);
void write_warning(const std::string& line);

template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write_info(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write_warning(fmt::format(format, std::forward<Args>(args)...));
}

// Writes the text unchanged. Text that cannot be written (for example, to a full disk) is lost without an error.
void write_console(std::FILE* stream, const std::string& text);

// From now on every line is also appended to this file, with the time of day; the lines logged before come first.
void open_file(const std::filesystem::path& path);
// `last_line` is written only to the file.
void close_file(const std::string& last_line);

// If on, lines other than warnings go to the file only. Ranks other than 0 use it.
void set_quiet(bool on);

// While this object exists, this thread's lines go only to `sink`, not to standard error or the log file. An empty sink
// drops them. libtandem redirects to its user's callback.
class Redirect {
 public:
  using Sink = std::function<void(bool warning, const std::string& line)>;
  explicit Redirect(const Sink& sink);  // must outlive this; the sink's own lines go to the outer destination
  ~Redirect();
  Redirect(const Redirect&) = delete;
  Redirect& operator=(const Redirect&) = delete;

 private:
  friend bool redirect(bool warning, const std::string& line);
  const Sink& sink_;
  Redirect* outer_;
};

// Draws `text` on the terminal's last line, below all log lines; an empty text removes it. Does nothing if
// standard error is not a terminal.
void status(const std::string& text);
bool on_terminal();
int columns();  // the terminal's width

}  // namespace tandem::inline core::log
