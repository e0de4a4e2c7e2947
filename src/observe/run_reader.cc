#include "observe/run_reader.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "core/error.h"
#include "core/file.h"
#include "core/parse.h"
#include "observe/metrics.h"

namespace tandem::observe {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostPoints = 1 << 14;   // points of a series, before they are merged to half
constexpr size_t kPointsOfAll = 1 << 17;  // points of all ranks together
constexpr size_t kFewestPoints = 1 << 8;  // least limit of a rank
constexpr size_t kMostRanks = 4096, kMostReasons = 64;

// Rank of metrics/<rank>.jsonl and of its segments, metrics/<rank>.<first>-<last>.jsonl; nothing for other names.
std::optional<int> rank_of(const fs::path& path) {
  const std::string stem = path.stem().string(), name = stem.substr(0, stem.find('.'));
  int rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  const bool good = path.extension() == ".jsonl" && error == std::errc() && end == name.data() + name.size() &&
                    (name == stem || stem.find('-') != std::string::npos);
  return good && rank >= 0 && std::to_string(rank) == name ? std::optional(rank) : std::nullopt;
}

double number_at(const nlohmann::ordered_json& json, const std::string& pointer) {
  const nlohmann::ordered_json::json_pointer place(pointer);
  const double value = json.contains(place) && json.at(place).is_number() ? json.at(place).get<double>() : kUnknown;
  return believable(value) ? value : kUnknown;
}

PreparedSide side_of(const nlohmann::ordered_json& json, const std::string& side) {
  const auto at = [&](const char* place) { return number_at(json, side + place); };
  return {.raw_lines = at("/raw/lines"),
          .raw_bytes = at("/raw/bytes"),
          .cleaned_bytes = at("/cleaned/bytes"),
          .cleaned_words = at("/cleaned/words"),
          .encoded_bytes = at("/encoded/bytes"),
          .tokens = at("/encoded/tokens"),
          .vocabulary = at("/vocabulary"),
          .unknown_percent = at("/unknown_percent")};
}

}  // namespace

int64_t RankMetrics::last_step() const {
  return std::max({train.empty() ? 0 : train.back().step, valid.empty() ? 0 : valid.back().step,
                   events.empty() ? 0 : events.back().step});
}

double RankMetrics::last_time() const {
  return std::max({train.empty() ? 0 : train.back().time, valid.empty() ? 0 : valid.back().time,
                   events.empty() ? 0 : events.back().time, setups.empty() ? 0 : setups.back().time,
                   probes.empty() ? 0 : probes.back().time});
}

std::span<const TrainPoint> RankMetrics::since_start() const {
  if (setups.empty()) {
    return train;
  }
  const int64_t start = setups.back().step;
  const auto first = std::find_if(train.begin(), train.end(), [&](const TrainPoint& p) { return p.step > start; });
  return {first, train.end()};
}

double RankMetrics::validation_seconds() const {
  double windows = 0, validations = 0;
  for (const TrainPoint& point : train) {
    windows += point.validation_seconds;
  }
  for (const ValidPoint& point : valid) {
    validations += std::isnan(point.seconds) ? 0 : point.seconds;
  }
  return std::max(windows, validations);  // no train record counts the last validation; a thinned series misses some
}

double RankMetrics::elapsed_seconds() const {
  double most = 0;
  for (auto point = train.rbegin(); point != train.rend() && most == 0; ++point) {
    most = std::isnan(point->elapsed_seconds) ? 0 : point->elapsed_seconds;
  }
  return !valid.empty() && valid.back().elapsed_seconds > most ? valid.back().elapsed_seconds : most;
}

SetupPoint setup_of(const RankMetrics& metrics) {
  return metrics.setups.empty() ? SetupPoint{} : metrics.setups.back();
}

std::optional<PreparedStats> read_stats(const fs::path& prepared) {
  const std::string text = read_small_file(prepared / "stats.json");
  const nlohmann::ordered_json json = nlohmann::ordered_json::parse(is_shallow_json(text) ? text : "", nullptr, false);
  if (!json.is_object()) {
    return std::nullopt;
  }
  PreparedStats stats{.copies = std::max(1.0, number_at(json, "/copies")),
                      .raw_pairs = number_at(json, "/pairs/raw"),
                      .train_pairs = number_at(json, "/pairs/train"),
                      .valid_pairs = number_at(json, "/valid_pairs"),
                      .test_pairs = number_at(json, "/test_pairs"),
                      .source = side_of(json, "/source"),
                      .target = side_of(json, "/target")};
  const nlohmann::ordered_json::json_pointer dropped("/pairs/dropped");
  if (json.contains(dropped) && json.at(dropped).is_object()) {
    for (const auto& [reason, count] : json.at(dropped).items()) {
      if (count.is_number() && stats.dropped.size() < kMostReasons) {
        stats.dropped.emplace_back(kept_text(reason, kLongestName),
                                   believable(count.get<double>()) ? count.get<double>() : 0);
      }
    }
  }
  return stats;
}

RunData read_run(const fs::path& path) {
  RunData run{.name = path.string(), .ranks = {}, .config = "", .stats = {}};
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    run.ranks.push_back(read_rank(path));
    return run;
  }
  require(fs::is_directory(path / "metrics", error),
          "{} is no run: it has no folder metrics; give the directory that `tandem train` wrote, or a metrics file",
          path.string());
  std::set<int> ranks;
  for (fs::directory_iterator entry(path / "metrics", error), end; !error && entry != end; entry.increment(error)) {
    if (const std::optional<int> rank = rank_of(entry->path()); rank && ranks.size() < kMostRanks) {
      ranks.insert(*rank);
    }
  }
  require(!error, "cannot read {}: {}", (path / "metrics").string(), error.message());
  for (const int rank : ranks) {
    // Rank 0 has the losses; the others are read for their times only.
    const size_t share = std::bit_floor(std::clamp(kPointsOfAll / ranks.size(), kFewestPoints, kMostPoints));
    const fs::path file = path / "metrics" / (std::to_string(rank) + ".jsonl");
    run.ranks.push_back(read_rank(file, rank, rank == 0 ? kMostPoints : share));
  }
  if (run.ranks.empty()) {
    run.ranks.emplace_back();
  }
  run.config = read_small_file(path / "config.toml");
  return run;
}

}  // namespace tandem::observe
