// The progress display of a long preparation, and its reaction to signals.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "core/signals.h"
#include "core/stopwatch.h"

namespace tandem::data {

// A status line with rate and remaining time; on a terminal only. It vanishes with the object.
class StatusLine {
 public:
  StatusLine(std::string work, std::string unit) : work_(std::move(work)), unit_(std::move(unit)) {}
  ~StatusLine();
  // share: the part of the whole work that is done, or negative if unknown.
  void show(int64_t done, double share);

 private:
  std::string work_, unit_;
  Stopwatch watch_;
  double last_ = -1;  // seconds at which the line was last drawn
};

// While it lives, SIGINT and SIGTERM remove the scratch directory and end the process with 128 + signal, even during a
// library's long call or while standard input is awaited.
class EndOnSignal {
 public:
  EndOnSignal(const Signals& signals, std::filesystem::path scratch);
  // If a signal has come, the process ends here instead of running into errors that the removal causes.
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

}  // namespace tandem::data
