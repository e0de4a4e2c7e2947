#include "observe/verdicts/storage.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "observe/verdicts/statistics.h"

namespace tandem::observe {

namespace {

constexpr double kLeastShare = 0.02, kLeastBytes = 1e9;
constexpr double kDay = 86400;
constexpr size_t kFewestPoints = 5;
constexpr size_t kBlocks = 30;      // blocks of probes, one point each: temporary files are noise within them
constexpr double kManyUnknown = 1;  // percent: about one in every four sentences

// Mean bytes of the checkpoints that are kept; 0 = not known.
double bytes_of_one(const CheckpointFacts& checkpoint) {
  const bool known = checkpoint.kept > 0 && checkpoint.kept_bytes > 0 && checkpoint.most_kept > 0;
  return known ? checkpoint.kept_bytes / checkpoint.kept : 0;
}

// Number of checkpoints that the run had by `time`: each is written in a window of steps, and at most `kept` stay.
double kept_at(const RankMetrics& metrics, double kept, double time) {
  const auto written = std::count_if(metrics.train.begin(), metrics.train.end(), [&](const TrainPoint& point) {
    return point.checkpoint_seconds > 0 && point.time <= time;
  });
  return std::min(static_cast<double>(written), kept);
}

// The means of neighbouring points.
std::vector<double> blocks_of(const std::vector<double>& values) {
  const size_t length = (values.size() + kBlocks - 1) / kBlocks;
  std::vector<double> means;
  for (size_t end = values.size() % length; end <= values.size(); end += length) {
    if (end >= length) {
      means.push_back(mean(std::span(values).subspan(end - length, length)));
    }
  }
  return means;
}

// Bytes per second by which the disk fills, without the run's own checkpoints.
double rate_of(const std::vector<double>& times, const std::vector<double>& frees, const RankMetrics& metrics,
               const CheckpointFacts& checkpoint) {
  const std::vector<double> time = blocks_of(times), free = blocks_of(frees);
  if (free.size() < kFewestPoints) {
    return 0;
  }
  const Stretch stretch = newest_stretch(time, free);
  if (!(stretch.fit.upper < 0)) {
    return 0;
  }
  // A line through a stair of so few steps is off by one of them at most.
  const double one = bytes_of_one(checkpoint), begin = stretch.x.front(), end = stretch.x.back();
  const double own = one * (kept_at(metrics, checkpoint.kept, end) - kept_at(metrics, checkpoint.kept, begin));
  const double fallen = -stretch.fit.slope * (end - begin);
  return own > 0 && fallen <= own + one ? 0 : (fallen - own) / (end - begin);
}

// Disk space of a rank's host, from its probes since the last start: a copy of a run has no newer number.
std::optional<DiskSpace> space_of(const RankMetrics& metrics, const CheckpointFacts& checkpoint) {
  DiskSpace space;
  std::vector<double> time, free;
  const double start = metrics.setups.empty() ? 0 : metrics.setups.back().time;
  for (const ProbePoint& point : metrics.probes) {
    if (point.time >= start && std::isfinite(point.disk_free_bytes)) {
      time.push_back(point.time);
      free.push_back(point.disk_free_bytes);
      space.total = point.disk_total_bytes;
    }
  }
  if (free.empty()) {
    return std::nullopt;
  }
  space.where = setup_of(metrics).host;
  space.probes = free.size();
  space.now = free.back();
  space.rate = rate_of(time, free, metrics, checkpoint);
  return space;
}

bool there_is_none(const CheckpointFacts& facts) { return facts.step < 0 || facts.files.empty(); }

void add_side(Verdict& v, const std::string& name, const PreparedSide& side) {
  v.add(name + "_raw", side.raw_bytes, "B").add(name + "_cleaned", side.cleaned_bytes, "B");
  v.add(name + "_encoded", side.encoded_bytes, "B").add(name + "_lines", side.raw_lines);
  v.add(name + "_tokens", side.tokens).add(name + "_words", side.cleaned_words);
  v.add(name + "_vocabulary", side.vocabulary).add(name + "_unknown", side.unknown_percent, "%");
}

}  // namespace

double CheckpointFacts::bytes(bool for_inference) const {
  double bytes = 0;
  for (const CheckpointFile& file : files) {
    bytes += file.inference || !for_inference ? file.bytes : 0;
  }
  return bytes;
}

double DiskSpace::room() const { return std::max(now - to_come, 0.0); }

double DiskSpace::seconds_to_full() const { return used_up() ? 0 : fills() ? room() / rate : kAnyNumber; }

double Storage::free_bytes() const {
  return std::isfinite(checkpoint.disk_free_bytes) ? checkpoint.disk_free_bytes : disk ? disk->now : kUnknown;
}

double Storage::room_for() const {
  const double free = free_bytes(), full = checkpoint.full_bytes();
  return std::isfinite(free) && full > 0 ? std::floor(free / full) : kUnknown;
}

double Storage::seconds_to_full() const { return disk && disk->fills() && !ended ? disk->seconds_to_full() : kUnknown; }

Storage storage_of(const RunData& run, const CheckpointFacts& checkpoint, const Duration& duration) {
  Storage storage{.checkpoint = checkpoint, .ended = duration.end.has_value()};
  storage.left = storage.ended ? 0 : duration.left.seconds;
  const auto urgency = [](const DiskSpace& space) { return std::pair(space.seconds_to_full(), space.now); };
  for (const RankMetrics& metrics : run.ranks) {
    // The first rank keeps all checkpoints; other hosts have only the latest.
    const bool keeps = metrics.rank == run.main().rank;
    std::optional<DiskSpace> space = space_of(metrics, keeps ? checkpoint : CheckpointFacts{});
    if (!space) {
      continue;
    }
    if (const double one = bytes_of_one(checkpoint); one > 0 && keeps && !storage.ended) {
      space->to_come = one * std::max(checkpoint.most_kept - checkpoint.kept, 0.0);
    }
    if (!storage.disk || urgency(*space) < urgency(*storage.disk)) {
      storage.disk = space;
    }
  }
  return storage;
}

Verdict disk(const Storage& storage) {
  if (!storage.disk) {
    return {.label = "empty"};
  }
  const DiskSpace& space = *storage.disk;
  const double share = space.now / space.total;
  const bool before_end = space.seconds_to_full() < (std::isfinite(storage.left) ? storage.left : kDay);
  Verdict v{.label = share < kLeastShare || space.now < kLeastBytes ? "nearly_full"
                     : before_end                                   ? "filling"
                                                                    : "ample",
            .confidence = space.probes >= 20 ? Confidence::high : Confidence::medium};
  v.add("free", space.now, "B").add("total", space.total, "B").add("free_share", share);
  v.add("filling_rate", space.rate, "B/s").add("seconds_to_full", storage.seconds_to_full(), "s");
  return v.add("checkpoints_to_come", space.to_come, "B").add("seconds_left", storage.left, "s");
}

Verdict checkpoint_contents(const Storage& storage) {
  const CheckpointFacts& facts = storage.checkpoint;
  if (there_is_none(facts)) {
    return {.label = "none"};
  }
  Verdict v{.label = facts.problems.empty() ? "complete" : "damaged", .confidence = Confidence::high};
  for (const CheckpointFile& file : facts.files) {
    v.add(file.name, file.bytes, "B");
  }
  v.add("step", static_cast<double>(facts.step)).add("parameters", facts.parameters);
  return v.add("problems", static_cast<double>(facts.problems.size()));
}

Verdict checkpoint_size(const Storage& storage) {
  const CheckpointFacts& facts = storage.checkpoint;
  if (there_is_none(facts)) {
    return {.label = "none"};
  }
  const double full = facts.full_bytes(), free = storage.free_bytes();
  Verdict v{.label = free < 2 * full ? "disk_short" : "fits",
            .confidence = std::isfinite(free) ? Confidence::high : Confidence::medium};
  v.add("full", full, "B").add("inference", facts.inference_bytes(), "B").add("kept", facts.kept);
  v.add("kept_bytes", facts.kept_bytes, "B").add("most_kept", facts.most_kept).add("disk_free", free, "B");
  return v.add("room_for", storage.room_for()).add("seconds_to_full", storage.seconds_to_full(), "s");
}

double dropped_pairs(const PreparedStats& stats) {
  double dropped = 0;
  for (const auto& [reason, count] : stats.dropped) {
    dropped += count;
  }
  return stats.dropped.empty() ? stats.raw_pairs - stats.train_pairs / stats.copies : dropped;
}

double dropped_share(const PreparedStats& stats) {
  return stats.raw_pairs > 0 ? dropped_pairs(stats) / stats.raw_pairs : kUnknown;
}

bool has_many_unknown(const PreparedStats& stats) {
  return stats.source.unknown_percent >= kManyUnknown || stats.target.unknown_percent >= kManyUnknown;
}

Verdict training_set(const std::optional<PreparedStats>& stats) {
  if (!stats || !(stats->train_pairs > 0)) {
    return {.label = "empty"};
  }
  const double share = dropped_share(*stats);
  Verdict v{.label = share >= kWorth            ? "much_dropped"
                     : has_many_unknown(*stats) ? "many_unknown"
                                                : "fine",
            .confidence = Confidence::high};
  v.add("pairs", stats->train_pairs).add("copies", stats->copies).add("raw_pairs", stats->raw_pairs);
  v.add("dropped_pairs", dropped_pairs(*stats)).add("dropped_share", share);
  v.add("valid_pairs", stats->valid_pairs).add("test_pairs", stats->test_pairs);
  add_side(v, "source", stats->source);
  add_side(v, "target", stats->target);
  return v;
}

}  // namespace tandem::observe
