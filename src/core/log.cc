#include "core/log.h"

#include <fmt/chrono.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fstream>
#include <mutex>

#include "core/error.h"

namespace tandem::inline core::log {

namespace {

thread_local Redirect* innermost = nullptr;

}  // namespace

Redirect::Redirect(const Sink& sink) : sink_(sink), outer_(std::exchange(innermost, this)) {}
Redirect::~Redirect() { innermost = outer_; }

// Sends the line to the innermost redirection; returns whether there is one.
bool redirect(bool warning, const std::string& line) {
  Redirect* const now = innermost;
  if (now == nullptr || !now->sink_) {
    return now != nullptr;
  }
  struct Restore {
    Redirect* redirect;
    ~Restore() { innermost = redirect; }
  } const restore{now};
  innermost = now->outer_;
  now->sink_(warning, line);
  return true;
}

namespace {

std::mutex mutex;
constexpr size_t kMostUnfiled = 1 << 16;  // bytes

std::ofstream file;
std::string unfiled;  // lines written before a file was opened
std::string status_text;
bool quiet = false;

// Cuts the text to the terminal's current width, because a wrapped line could not be removed again.
void draw_status() {
  if (!status_text.empty()) {
    write_console(stderr, "\r\033[K" + status_text.substr(0, static_cast<size_t>(columns())));
  }
}

std::string dated_line(const std::string& line) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} {}\n", fmt::localtime(std::time(nullptr)), line);
}

void write_line(const std::string& line, const char* mark, bool warning) {
  if (redirect(warning, line)) {
    return;
  }
  const std::lock_guard lock(mutex);
  if (warning || !quiet) {
    write_console(stderr, fmt::format("{}{}{}\n", status_text.empty() ? "" : "\r\033[K", mark, line));
    draw_status();
  }
  const std::string dated = dated_line(mark + line);
  if (file.is_open()) {
    file << dated << std::flush;
  } else if (unfiled.size() + dated.size() <= kMostUnfiled) {
    unfiled += dated;
  }
}

}  // namespace

void write_console(std::FILE* stream, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

void write_info(const std::string& line) { write_line(line, "", false); }
void write_warning(const std::string& line) { write_line(line, "warning: ", true); }

void open_file(const std::filesystem::path& path) {
  const std::lock_guard lock(mutex);
  file.close();
  file.clear();
  file.open(path, std::ios::app);
  require(file.is_open(), "cannot write the log {}: check that the directory is writable", path.string());
  file << std::exchange(unfiled, "") << std::flush;
}

void close_file(const std::string& last_line) {
  const std::lock_guard lock(mutex);
  if (file.is_open()) {
    file << dated_line(last_line);
    file.close();
  }
}

void set_quiet(bool on) {
  const std::lock_guard lock(mutex);
  quiet = on;
}

bool on_terminal() {
  static const bool answer = isatty(STDERR_FILENO) == 1;
  return answer && !quiet;
}

int columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void status(const std::string& text) {
  if (!on_terminal()) {
    return;
  }
  const std::lock_guard lock(mutex);
  if (text.empty() && !status_text.empty()) {
    write_console(stderr, "\r\033[K");
  }
  status_text = text;
  draw_status();
}

}  // namespace tandem::inline core::log
