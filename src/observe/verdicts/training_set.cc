#include "observe/verdicts/training_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/units.h"
#include "observe/progress.h"
#include "observe/verdicts/rank_clock.h"

namespace tandem {

namespace {

constexpr double kManyUnknown = 1;  // percent: one in every four sentences or so

std::string count_text(double count) {
  return std::fabs(count) < 1e18 ? grouped(static_cast<int64_t>(count)) : "an unknown number of";
}

double dropped_of(const PreparedStats& stats) {
  double dropped = 0;
  for (const auto& [reason, count] : stats.dropped) {
    dropped += count;
  }
  return stats.dropped.empty() ? stats.raw_pairs - stats.train_pairs / stats.copies : dropped;
}

std::string reasons_text(const PreparedStats& stats) {
  std::string text;
  for (const auto& [reason, count] : stats.dropped) {
    if (count > 0) {
      text += fmt::format("{}{} {}", text.empty() ? " (" : ", ", count_text(count), reason);
    }
  }
  return text.empty() ? "" : text + ")";
}

std::string side_text(const char* name, const PreparedSide& side) {
  return fmt::format(
      "{}: raw {}, cleaned {}, encoded {} as {} pieces, {} unknown", name, size_text(side.raw_bytes),
      size_text(side.cleaned_bytes), size_text(side.encoded_bytes), count_text(side.tokens),
      std::isfinite(side.unknown_percent) ? fmt::format("{:.3g} %", side.unknown_percent) : "an unknown share");
}

void add_side(Verdict& v, const std::string& name, const PreparedSide& side) {
  v.add(name + "_raw", side.raw_bytes, "B").add(name + "_cleaned", side.cleaned_bytes, "B");
  v.add(name + "_encoded", side.encoded_bytes, "B").add(name + "_lines", side.raw_lines);
  v.add(name + "_tokens", side.tokens).add(name + "_words", side.cleaned_words);
  v.add(name + "_vocabulary", side.vocabulary).add(name + "_unknown", side.unknown_percent, "%");
}

}  // namespace

Verdict training_set(const RunData& run) {
  Verdict v{.key = "training_set", .question = "What is the training set?", .label = "empty", .answer = ""};
  if (!run.stats || !(run.stats->train_pairs > 0)) {
    v.answer = "That cannot be said: the prepared data's stats.json was not found (give it with --data).";
    return v;
  }
  const PreparedStats& stats = *run.stats;
  const double dropped = dropped_of(stats), share = stats.raw_pairs > 0 ? dropped / stats.raw_pairs : kUnknown;
  const bool unknown = stats.source.unknown_percent >= kManyUnknown || stats.target.unknown_percent >= kManyUnknown;
  v.label = share >= kWorth ? "much_dropped" : unknown ? "many_unknown" : "fine";
  v.confidence = Confidence::high;
  v.add("pairs", stats.train_pairs)
      .add("copies", stats.copies)
      .add("raw_pairs", stats.raw_pairs)
      .add("dropped_pairs", dropped);
  v.add("dropped_share", share).add("valid_pairs", stats.valid_pairs).add("test_pairs", stats.test_pairs);
  add_side(v, "source", stats.source);
  add_side(v, "target", stats.target);
  const std::string copies = stats.copies > 1
                                 ? fmt::format(" ({}, {} times each, in other pieces)",
                                               count_text(stats.train_pairs / stats.copies), count_text(stats.copies))
                                 : "";
  v.answer =
      fmt::format("{} pairs{} of {} raw lines a side; {} were dropped, {}{}; {}; {}{}.", count_text(stats.train_pairs),
                  copies, count_text(stats.raw_pairs), count_text(dropped), percent_text(share), reasons_text(stats),
                  side_text("source", stats.source), side_text("target", stats.target),
                  unknown ? "; so many unknown pieces mean that the vocabulary does not fit the text" : "");
  return v;
}

}  // namespace tandem
