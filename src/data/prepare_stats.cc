#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/human.h"
#include "data/prepare.h"

namespace tandem::data {

namespace {

using Json = nlohmann::ordered_json;

double percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

Json side_json(const SideStats& side, const PrepareStats& stats) {
  Json lengths = Json::array();
  for (size_t i = 0; i < SideStats::kClasses; ++i) {
    const auto first = static_cast<int64_t>(i) * SideStats::kClassWidth + 1;
    Json entry = {{"from", first}, {"to", first + SideStats::kClassWidth - 1}, {"sentences", side.lengths[i]}};
    if (i + 1 == SideStats::kClasses) {
      entry["to"] = nullptr;
    }
    lengths.push_back(entry);
  }
  return {{"raw", {{"lines", stats.raw_pairs}, {"bytes", side.raw_bytes}}},
          {"cleaned", {{"lines", stats.pairs / stats.copies}, {"bytes", side.cleaned_bytes}, {"words", side.words}}},
          {"encoded", {{"lines", stats.pairs}, {"bytes", side.encoded_bytes}, {"tokens", side.tokens}}},
          {"vocabulary", side.vocabulary},
          {"unknown_tokens", side.unknown},
          {"unknown_percent", percent(side.unknown, side.tokens)},
          {"length_histogram", lengths}};
}

std::string row(const char* name, const std::string& source, const std::string& target) {
  return fmt::format("{:<22}{:>18}{:>18}\n", name, source, target);
}

template <class Value>
std::string number_row(const char* name, const PrepareStats& stats, Value SideStats::*member) {
  return row(name, grouped(stats[Side::source].*member), grouped(stats[Side::target].*member));
}

std::string length_rows(const PrepareStats& stats) {
  std::string text;
  for (size_t i = 0; i < SideStats::kClasses; ++i) {
    const int64_t source = stats[Side::source].lengths[i], target = stats[Side::target].lengths[i];
    if (source + target > 0) {
      const auto first = static_cast<int64_t>(i) * SideStats::kClassWidth + 1;
      const std::string name = i + 1 == SideStats::kClasses
                                   ? fmt::format("  {} and more tokens", first)
                                   : fmt::format("  {}-{} tokens", first, first + SideStats::kClassWidth - 1);
      text += row(name.c_str(), grouped(source), grouped(target));
    }
  }
  return text;
}

}  // namespace

void SideStats::add_sentence(std::span<const int32_t> ids, int32_t unknown_id) {
  const size_t length = ids.size();
  tokens += static_cast<int64_t>(length);
  unknown += std::count(ids.begin(), ids.end(), unknown_id);
  ++lengths[std::min(kClasses - 1, (length - 1) / static_cast<size_t>(kClassWidth))];
}

std::string dropped_text(const PrepareStats& stats) {
  std::string text;
  for (size_t i = 1; i < text::kDropReasons; ++i) {
    if (stats.dropped[i] > 0) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", grouped(stats.dropped[i]), text::kDropNames[i]);
    }
  }
  return text;
}

std::string to_json(const PrepareStats& stats) {
  Json dropped = Json::object();
  for (size_t i = 1; i < text::kDropReasons; ++i) {
    dropped[text::kDropNames[i]] = stats.dropped[i];
  }
  const Json json = {{"pairs", {{"raw", stats.raw_pairs}, {"dropped", dropped}, {"train", stats.pairs}}},
                     {"copies", stats.copies},
                     {"subword_dropout", stats.subword_dropout},
                     {"valid_pairs", stats.valid_pairs},
                     {"test_pairs", stats.test_pairs},
                     {"joint_vocabulary", stats.joint},
                     {"tokenizer_words", stats.tokenizer_words},
                     {"tokenizer_words_in_text", stats.tokenizer_words_all},
                     {"source", side_json(stats[Side::source], stats)},
                     {"target", side_json(stats[Side::target], stats)},
                     {"seconds",
                      {{"reading", stats.seconds_reading},
                       {"tokenizer", stats.seconds_training},
                       {"encoding", stats.seconds_encoding},
                       {"total", stats.seconds}}}};
  return json.dump(2) + "\n";
}

std::string to_table(const PrepareStats& stats) {
  std::string text = row("", "source", "target");
  text += row("raw lines", grouped(stats.raw_pairs), grouped(stats.raw_pairs));
  text += number_row("raw bytes", stats, &SideStats::raw_bytes);
  const int64_t cleaned = stats.pairs / stats.copies;
  text += row("cleaned lines", grouped(cleaned), grouped(cleaned));
  text += number_row("cleaned bytes", stats, &SideStats::cleaned_bytes);
  text += number_row("cleaned words", stats, &SideStats::words);
  text += number_row("tokens", stats, &SideStats::tokens);
  text += number_row("encoded bytes", stats, &SideStats::encoded_bytes);
  text += number_row("vocabulary", stats, &SideStats::vocabulary);
  const auto unknown = [](const SideStats& side) {
    return fmt::format("{:.4f} %", percent(side.unknown, side.tokens));
  };
  text += row("unknown", unknown(stats[Side::source]), unknown(stats[Side::target]));
  text += length_rows(stats);
  const int64_t dropped = stats.raw_pairs - cleaned;
  text += fmt::format("dropped pairs: {} ({:.2f} %){}{}\n", grouped(dropped), percent(dropped, stats.raw_pairs),
                      dropped_text(stats).empty() ? "" : ": ", dropped_text(stats));
  std::string copies;
  if (stats.subword_dropout > 0) {
    const std::string times =
        stats.copies == 1 ? "" : fmt::format("{}, {} times each, ", grouped(cleaned), stats.copies);
    copies = fmt::format(" ({}subword dropout {})", times, stats.subword_dropout);
  }
  text += fmt::format("training pairs: {}{}, validation: {}, test: {}\n", grouped(stats.pairs), copies,
                      grouped(stats.valid_pairs), grouped(stats.test_pairs));
  if (stats.tokenizer_words > 0) {
    text += fmt::format("tokenizer: {} vocabulary, learnt from the {} most frequent of {} different words\n",
                        stats.joint ? "joint" : "separate", grouped(stats.tokenizer_words),
                        grouped(stats.tokenizer_words_all));
  }
  text += fmt::format(
      "time: {:.1f} s (reading {:.1f} s, tokenizer {:.1f} s, encoding {:.1f} s: {} lines/s)\n", stats.seconds,
      stats.seconds_reading, stats.seconds_training, stats.seconds_encoding,
      grouped(static_cast<int64_t>(2.0 * static_cast<double>(stats.pairs) / std::max(stats.seconds_encoding, 1e-9))));
  return text;
}

}  // namespace tandem::data
