#include "data/prepare_progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "core/error.h"
#include "core/log.h"

namespace tandem::data {

StatusLine::~StatusLine() { log::status(""); }

void StatusLine::show(int64_t done, double share) {
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

EndOnSignal::EndOnSignal(const Signals& signals, std::filesystem::path scratch)
    : signals_(signals), scratch_(std::move(scratch)), thread_([this] { watch(); }) {}

EndOnSignal::~EndOnSignal() {
  done_ = true;
  thread_.join();
}

void EndOnSignal::watch() {
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

}  // namespace tandem::data
