#include "observe/run_log.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {

namespace {

struct Tag {
  const char* kind;
  const char* key;
  const char* tag;
};

constexpr Tag kTags[] = {
    {"train", "loss", "train/loss_smoothed"},
    {"train", "learning_rate", "learning_rate"},
    {"train", "gradient_norm", "Loss_Optimization/global_gradient_norm"},
    {"train", "clipped_gradient_norm", "Loss_Optimization/global_clipped_gradient_norm"},
    {"train", "steps_per_second", "global_step/sec"},
    {"train", "epoch", "epoch"},
    {"valid", "bleu", "valid/BLEU"},
    {"valid", "chrf", "valid/chrF"},
};

// An indented block, which markdown shows letter for letter.
std::string sample_markdown(const Record& record) {
  std::string markdown;
  for (const auto& [name, value] : record.fields) {
    if (const auto* text = std::get_if<std::string>(&value)) {
      std::string line = *text;
      std::replace_if(
          line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
      markdown += fmt::format("    {:12} {}\n", name, line);
    }
  }
  return markdown;
}

}  // namespace

std::string tag_of(const std::string& kind, const std::string& key) {
  for (const Tag& known : kTags) {
    if (kind == known.kind && key == known.key) {
      return known.tag;
    }
  }
  return kind + "/" + key;
}

RunLog::RunLog(const std::filesystem::path& metrics, const std::filesystem::path& events, int rank,
               std::optional<int64_t> done)
    : metrics_(metrics / fmt::format("{}.jsonl", rank), done.value_or(-1)) {
  if (rank == 0) {
    events_.emplace(events, done.value_or(-1) + 1);
  }
}

void RunLog::write(const Record& record) {
  metrics_.write(record);
  if (!events_ || record.kind == "event") {
    return;
  }
  if (record.kind == "sample") {
    const auto index = static_cast<int64_t>(record.number("index").value_or(0));
    events_->text(record.time, record.step, fmt::format("sample/{}", index), sample_markdown(record));
    return;
  }
  Scalars scalars;
  for (const auto& [key, value] : record.fields) {
    if (const auto* number = std::get_if<double>(&value)) {
      scalars.emplace_back(tag_of(record.kind, key), *number);
    }
  }
  if (!scalars.empty()) {
    events_->scalars(record.time, record.step, scalars);
  }
}

void RunLog::rewind(int64_t done) {
  metrics_.cut_after(done);
  if (events_) {
    events_->restart(unix_time(), done + 1);
  }
}

void RunLog::hyperparameters(const Hyperparameters& values) {
  if (events_) {
    events_->hyperparameters(unix_time(), values);
  }
}

void RunLog::text(int64_t step, const std::string& tag, const std::string& markdown) {
  if (events_) {
    events_->text(unix_time(), step, tag, markdown);
  }
}

void RunLog::finish(bool success) {
  if (events_) {
    events_->end_session(unix_time(), success);
  }
  sync();
}

}  // namespace tandem
