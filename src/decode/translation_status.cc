#include "decode/translation_status.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/log.h"
#include "core/stopwatch.h"

namespace tandem::decode {

std::function<void(const CallProgress&)> translation_status() {
  return [watch = Stopwatch()](const CallProgress& progress) mutable {
    if (progress.sentences == progress.all_sentences) {
      log::status("");
      return;
    }
    if (progress.sentences == 0) {
      watch = Stopwatch();
    }
    std::string text = fmt::format("translating: {} of {} sentences", progress.sentences, progress.all_sentences);
    if (progress.sentences > 0) {
      const double seconds = std::max(watch.seconds(), 1e-6);
      const auto left = static_cast<double>(progress.all_pieces - progress.pieces);
      text += fmt::format("  {:.1f}/s  {:.0f} s left", static_cast<double>(progress.sentences) / seconds,
                          seconds * left / static_cast<double>(progress.pieces));
    }
    log::status(text);
  };
}

}  // namespace tandem::decode
