#include "observe/verdicts/checkpoint.h"

#include <fmt/format.h>

#include <cmath>

#include "core/human.h"
#include "core/units.h"
#include "observe/verdicts/disk.h"

namespace tandem {

namespace {

constexpr const char* kNone = "There is no checkpoint yet.";

struct Bytes {
  double full = 0, inference = 0;
};

Bytes bytes_of(const CheckpointFacts& facts) {
  Bytes bytes;
  for (const CheckpointFile& file : facts.files) {
    bytes.full += file.bytes;
    bytes.inference += file.inference ? file.bytes : 0;
  }
  return bytes;
}

// Of checkpoints; nobody has a billion.
bool is_count(double value) { return value >= 0 && value < 1e9; }

bool there_is_none(const CheckpointFacts& facts) { return facts.step < 0 || facts.files.empty(); }

std::string room_text(double checkpoints) {
  return is_count(checkpoints) ? fmt::format("room for {} more", grouped(static_cast<int64_t>(checkpoints)))
                               : "room enough";
}

double free_of(const CheckpointFacts& facts, const Verdict& disk) {
  return std::isfinite(facts.disk_free_bytes) ? facts.disk_free_bytes : disk.figure("free");
}

}  // namespace

Verdict checkpoint_contents(const CheckpointFacts& facts) {
  Verdict v{
      .key = "checkpoint_contents", .question = "What does a checkpoint consist of?", .label = "none", .answer = kNone};
  if (there_is_none(facts)) {
    return v;
  }
  std::string parts;
  for (const CheckpointFile& file : facts.files) {
    v.add(file.name, file.bytes, "B");
    const std::string& what = file.holds.empty() ? file.role : file.holds;
    parts += fmt::format("{}{} {}{}", parts.empty() ? "" : ", ", file.name, human_bytes(file.bytes),
                         what.empty() ? "" : " (" + what + ")");
  }
  v.label = facts.problems.empty() ? "complete" : "damaged";
  v.confidence = Confidence::high;
  v.add("step", static_cast<double>(facts.step)).add("parameters", facts.parameters);
  v.add("problems", static_cast<double>(facts.problems.size()));
  v.answer = fmt::format(
      "The newest, of step {}, is a directory of {} file{}: {}; with all of them a run goes on bit for "
      "bit, translating needs less{}.",
      grouped(facts.step), facts.files.size(), facts.files.size() == 1 ? "" : "s", parts,
      facts.problems.empty() ? "" : "; it is damaged: " + facts.problems.front());
  return v;
}

Verdict checkpoint_size(const CheckpointFacts& facts, const RunData& run, const RunPlan& plan) {
  Verdict v{.key = "checkpoint_size", .question = "How big is a checkpoint?", .label = "none", .answer = kNone};
  if (there_is_none(facts)) {
    return v;
  }
  const Bytes bytes = bytes_of(facts);
  const Verdict space = disk(run, plan, facts);
  const double free = free_of(facts, space), until = space.figure("seconds_to_full");
  v.label = free < 2 * bytes.full ? "disk_short" : "fits";
  v.confidence = std::isfinite(free) ? Confidence::high : Confidence::medium;
  v.add("full", bytes.full, "B").add("inference", bytes.inference, "B").add("kept", facts.kept);
  v.add("kept_bytes", facts.kept_bytes, "B").add("most_kept", facts.most_kept).add("disk_free", free, "B");
  v.add("room_for", std::isfinite(free) && bytes.full > 0 ? std::floor(free / bytes.full) : kUnknown);
  v.add("seconds_to_full", until, "s");
  v.answer =
      fmt::format("{} in full, of which translating needs {}", size_text(bytes.full), size_text(bytes.inference));
  v.answer += facts.kept > 0 && is_count(facts.kept)
                  ? fmt::format("; {:.0f} kept{} take {}", facts.kept,
                                is_count(facts.most_kept) ? fmt::format(" of at most {:.0f}", facts.most_kept) : "",
                                size_text(facts.kept_bytes))
                  : "";
  if (std::isfinite(free)) {
    v.answer += fmt::format("; {} of disk is free, {}", human_bytes(free),
                            v.label == "fits" ? room_text(v.figure("room_for"))
                                              : std::string("too little: a new one is written before an old one goes"));
  }
  v.answer += std::isfinite(until) ? fmt::format("; at the present rate it is full in {}", human_duration(until)) : "";
  v.answer += ".";
  return v;
}

}  // namespace tandem
