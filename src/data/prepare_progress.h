// What a long preparation shows, and how it stops when asked to.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "core/signals.h"

namespace tandem {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

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

// While it lives, SIGINT and SIGTERM remove the scratch directory and end the process with 128 + signal. For a long
// call into a library that cannot be stopped.
class EndProcess {
 public:
  EndProcess(const Signals& signals, std::filesystem::path scratch);
  ~EndProcess();
  EndProcess(const EndProcess&) = delete;
  EndProcess& operator=(const EndProcess&) = delete;

 private:
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// SIGINT and SIGTERM while it lives: check() throws Interrupted.
class Interrupt {
 public:
  void check() const;

  const Signals& signals() const { return signals_; }

 private:
  Signals signals_;
};

}  // namespace tandem
