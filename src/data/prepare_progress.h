// What a long preparation shows, and how it stops when asked to.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "core/signals.h"
#include "core/stopwatch.h"

namespace tandem {

// A status line with rate and remaining time on a terminal; nothing elsewhere. It vanishes with the object.
class StatusLine {
 public:
  StatusLine(std::string work, std::string unit) : work_(std::move(work)), unit_(std::move(unit)) {}
  ~StatusLine();
  // share: of the whole work, or negative when it is not known.
  void show(int64_t done, double share);

 private:
  std::string work_, unit_;
  Stopwatch watch_;
  double last_ = -1;  // seconds at which the line was drawn
};

// While it lives, SIGINT and SIGTERM remove the scratch directory and end the process with 128 + signal, also in the
// middle of a library's long call or while standard input is awaited.
class EndOnSignal {
 public:
  EndOnSignal(const Signals& signals, std::filesystem::path scratch);
  // When a signal has come, the process ends here and not through what it broke.
  ~EndOnSignal();
  EndOnSignal(const EndOnSignal&) = delete;
  EndOnSignal& operator=(const EndOnSignal&) = delete;

 private:
  void watch();

  const Signals& signals_;
  std::filesystem::path scratch_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace tandem
