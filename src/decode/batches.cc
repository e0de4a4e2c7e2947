#include "decode/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "backend/backend.h"
#include "core/error.h"
#include "core/log.h"
#include "core/stopwatch.h"

namespace tandem::decode {

void check(const CallOptions& options) {
  require(options.batch >= 0, "a batch of {} sentences is not possible: give 1 or more, or 0 for the usual",
          options.batch);
  require(options.batch_tokens >= 0, "a batch of {} pieces is not possible: give 1 or more, or 0 for the usual",
          options.batch_tokens);
}

void for_each_batch(std::span<const int64_t> sizes, const CallOptions& options, int64_t usual, int64_t* most,
                    const std::function<void(std::span<const size_t>)>& body) {
  const int64_t wanted = options.batch > 0 ? options.batch : usual;
  const int64_t most_tokens = options.batch_tokens > 0 ? options.batch_tokens : 64 * std::max(usual, wanted);
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  CallProgress progress;
  progress.all_sentences = static_cast<int64_t>(sizes.size());
  progress.all_pieces = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const auto tell = [&] {
    if (options.on_progress) {
      options.on_progress(progress);
    }
  };
  for (size_t done = 0; done < order.size();) {
    int64_t tokens = 0, pieces = 0;
    size_t end = done;
    for (; end < order.size() && static_cast<int64_t>(end - done) < std::min(wanted, *most); ++end) {
      tokens += sizes[order[end]] + 1;
      if (end > done && tokens > most_tokens) {
        break;
      }
      pieces += sizes[order[end]];
    }
    tell();
    require(!options.stop.stop_requested(), "stopped after {} of {} sentences", done, order.size());
    try {
      body(std::span(order).subspan(done, end - done));
    } catch (const backend::OutOfMemory& error) {
      if (end - done == 1) {
        throw;
      }
      *most = static_cast<int64_t>(end - done + 1) / 2;
      log::warning("{}; from now on {} sentences are decoded together", error.what(), *most);
      continue;
    }
    done = end;
    progress.sentences = static_cast<int64_t>(done);
    progress.pieces += pieces;
  }
  tell();
}

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
