// The progress display of a long preparation, and its reaction to signals.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "core/log.h"
#include "core/signals.h"
#include "core/stopwatch.h"

namespace tandem::data {

// A status line with rate and remaining time; on a terminal only. The destructor removes it.
class StatusLine {
 public:
  StatusLine(std::string work, std::string unit) : work_(std::move(work)), unit_(std::move(unit)) {}
  ~StatusLine() { log::status(""); }

  // share: the part of the whole work that is done, or negative if unknown.
  void show(int64_t done, double share) {
    const double now = watch_.seconds();
    if (!log::on_terminal() || (last_ >= 0 && now - last_ < 0.2)) {
      return;
    }
    last_ = now;
    std::string text = work_;
    if (!unit_.empty()) {
      text += fmt::format("  {} {}  {:.0f}/s", done, unit_, static_cast<double>(done) / std::max(now, 1e-9));
    }
    if (share > 0) {
      text += fmt::format("  {:.0f} %  {:.0f} s left", 100 * share, now / share * (1 - share));
    }
    log::status(text);
  }

 private:
  std::string work_, unit_;
  Stopwatch watch_;
  double last_ = -1;  // seconds at which the line was last drawn
};

// While this object exists, SIGINT, SIGTERM and SIGHUP remove the scratch directory and end the process with 128 +
// signal, even during a library's long call or while waiting for standard input.
class EndOnSignal {
 public:
  EndOnSignal(const Signals& signals, std::filesystem::path scratch)
      : signals_(signals), scratch_(std::move(scratch)), thread_([this] { watch(); }) {}
  // If a signal has come, the process ends here instead of running into errors that the removal causes.
  ~EndOnSignal() {
    done_ = true;
    thread_.join();
  }
  EndOnSignal(const EndOnSignal&) = delete;
  EndOnSignal& operator=(const EndOnSignal&) = delete;

 private:
  void watch() {
    for (bool last = false; !last;) {
      last = done_;  // a signal that came before the end still counts
      if (const int signal = signals_.stop_signal(); signal != 0) {
        std::error_code ignored;
        while (std::filesystem::exists(scratch_, ignored)) {  // the work continues and may write another file
          std::filesystem::remove_all(scratch_, ignored);
        }
        log::status("");
        std::fputs("tandem: interrupted; nothing was written\n", stderr);
        ::_exit(128 + signal);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(last ? 0 : 20));
    }
  }

  const Signals& signals_;
  std::filesystem::path scratch_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace tandem::data
