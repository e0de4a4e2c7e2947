#include <fmt/format.h>

#include <cmath>

#include "core/human.h"
#include "report/sentences/sentences.h"

namespace tandem::report {

namespace {

constexpr const char* kNoCheckpoint = "There is no checkpoint yet.";

// How checkpoints to come and other programs fill the disk.
std::string trend_text(const observe::DiskSpace& space, bool ended) {
  const bool to_come = space.to_come > 0;
  const std::string own =
      to_come ? fmt::format("the checkpoints still to be kept take {}", human_bytes(space.to_come)) : "";
  if (space.used_up()) {
    return to_come ? own + ", which is more" : "nothing is left";
  }
  const std::string rate = human_bytes(3600 * space.rate), also = to_come ? own + "; " : "";
  if (!space.fills()) {
    return also + "it does not fill up beyond the ups and downs of checkpoints";
  }
  return ended ? fmt::format("during the run it filled by {} an hour beyond the run's checkpoints", rate)
               : fmt::format("{}it fills by {} an hour and would be full in {}", also, rate,
                             human_duration(space.seconds_to_full()));
}

std::string kept_text(const observe::CheckpointFacts& facts) {
  if (!(facts.kept > 0 && observe::is_count(facts.kept))) {
    return "";
  }
  const std::string most = observe::is_count(facts.most_kept) ? fmt::format(" of at most {:.0f}", facts.most_kept) : "";
  return fmt::format("; {:.0f} kept{} take {}", facts.kept, most, size_text(facts.kept_bytes));
}

std::string room_text(const observe::Storage& storage, const std::string& label) {
  if (!std::isfinite(storage.free_bytes())) {
    return "";
  }
  const std::string free = fmt::format("; {} of disk is free, ", human_bytes(storage.free_bytes()));
  if (label == "disk_short") {
    return free + "too little: a new one is written before an old one goes";
  }
  const double room = storage.room_for();
  return free + (observe::is_count(room) ? fmt::format("room for {} more", grouped(static_cast<int64_t>(room)))
                                         : "room enough");
}

std::string count_text(double count) {
  return std::fabs(count) < 1e18 ? grouped(static_cast<int64_t>(count)) : "an unknown number of";
}

std::string reasons_text(const observe::PreparedStats& stats) {
  std::string text;
  for (const auto& [reason, count] : stats.dropped) {
    if (count > 0) {
      text += fmt::format("{}{} {}", text.empty() ? " (" : ", ", count_text(count), reason);
    }
  }
  return text.empty() ? "" : text + ")";
}

std::string copies_text(const observe::PreparedStats& stats) {
  return stats.copies > 1 ? fmt::format(" ({}, {} times each, in other pieces)",
                                        count_text(stats.train_pairs / stats.copies), count_text(stats.copies))
                          : "";
}

std::string side_text(const observe::PreparedSide& side) {
  return fmt::format(
      "raw {}, cleaned {}, encoded {} as {} pieces, {} unknown", size_text(side.raw_bytes),
      size_text(side.cleaned_bytes), size_text(side.encoded_bytes), count_text(side.tokens),
      std::isfinite(side.unknown_percent) ? fmt::format("{:.3g} %", side.unknown_percent) : "an unknown share");
}

}  // namespace

std::string disk_text(const observe::Storage& storage, const observe::Verdict& v) {
  if (v.label == "empty") {
    return "That cannot be said: the space on the disk is not recorded.";
  }
  const observe::DiskSpace& space = *storage.disk;
  const char* opening = v.label == "ample" ? "No" : v.label == "filling" ? "Yes" : "It nearly is";
  const std::string where = space.where.empty() ? "" : " on " + space.where;
  const std::string total = std::isfinite(space.total) ? " of " + human_bytes(space.total) : "";
  std::string text = fmt::format("{}: {}{} is free ({}){}; {}", opening, size_text(space.now), where,
                                 percent_text(space.now / space.total), total, trend_text(space, storage.ended));
  if (std::isfinite(storage.left) && storage.left > 0) {
    text += fmt::format("; {} of training are left", human_duration(storage.left));
  }
  return text + ".";
}

std::string checkpoint_contents_text(const observe::Storage& storage, const observe::Verdict& v) {
  if (v.label == "none") {
    return kNoCheckpoint;
  }
  const observe::CheckpointFacts& facts = storage.checkpoint;
  std::string files;
  for (const observe::CheckpointFile& file : facts.files) {
    const std::string& what = file.holds.empty() ? file.role : file.holds;
    files += fmt::format("{}{} {}{}", files.empty() ? "" : ", ", file.name, human_bytes(file.bytes),
                         what.empty() ? "" : " (" + what + ")");
  }
  return fmt::format(
      "The newest, of step {}, is a directory of {} file{}: {}; with all of them a run goes on bit for bit, "
      "translating needs less{}.",
      grouped(facts.step), facts.files.size(), facts.files.size() == 1 ? "" : "s", files,
      v.label == "damaged" ? "; it is damaged: " + facts.problems.front() : "");
}

std::string checkpoint_size_text(const observe::Storage& storage, const observe::Verdict& v) {
  if (v.label == "none") {
    return kNoCheckpoint;
  }
  const observe::CheckpointFacts& facts = storage.checkpoint;
  std::string text = fmt::format("{} in full, of which translating needs {}", size_text(facts.full_bytes()),
                                 size_text(facts.inference_bytes()));
  text += kept_text(facts) + room_text(storage, v.label);
  if (const double until = storage.seconds_to_full(); std::isfinite(until)) {
    text += fmt::format("; at the present rate it is full in {}", human_duration(until));
  }
  return text + ".";
}

std::string training_set_text(const std::optional<observe::PreparedStats>& stats, const observe::Verdict& v) {
  if (v.label == "empty") {
    return "That cannot be said: the prepared data's stats.json was not found (give it with --data).";
  }
  std::string text =
      fmt::format("{} pairs{} of {} raw lines a side; {} were dropped, {}{}; source: {}; target: {}",
                  count_text(stats->train_pairs), copies_text(*stats), count_text(stats->raw_pairs),
                  count_text(observe::dropped_pairs(*stats)), percent_text(observe::dropped_share(*stats)),
                  reasons_text(*stats), side_text(stats->source), side_text(stats->target));
  if (observe::has_many_unknown(*stats)) {
    text += "; so many unknown pieces mean that the vocabulary does not fit the text";
  }
  return text + ".";
}

}  // namespace tandem::report
