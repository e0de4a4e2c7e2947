#include "observe/run_log.h"

#include <fmt/format.h>

#include <algorithm>

#include "observe/fields.h"

namespace tandem::observe {

namespace {

struct Tag {
  const char* kind;
  const char* key;
  const char* tag;
};

// The original system's tags of the same quantities, or clearer names.
constexpr Tag kTags[] = {
    {"train", "loss", "train/loss_smoothed"},
    {"train", "learning_rate", "learning_rate"},
    {"train", "gradient_norm", "Loss_Optimization/global_gradient_norm"},
    {"train", "clipped_gradient_norm", "Loss_Optimization/global_clipped_gradient_norm"},
    {"train", "steps_per_second", "global_step/sec"},
    {"train", "epoch", "epoch"},
    {"valid", "bleu", "valid/BLEU"},
    {"valid", "bleu_low", "valid/BLEU_low"},
    {"valid", "bleu_high", "valid/BLEU_high"},
    {"valid", "chrf", "valid/chrF"},
};

constexpr double kProbeSeconds = 60;  // length of a TensorBoard point: keeps files small that nobody thins

// An indented block, which markdown shows verbatim.
std::string as_markdown(const Record& record, bool with_numbers) {
  std::string markdown;
  for (const auto& [name, value] : record.fields) {
    if (const auto* text = std::get_if<std::string>(&value)) {
      std::string line = *text;
      std::replace_if(
          line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
      markdown += fmt::format("    {:12} {}\n", name, line);
    } else if (with_numbers) {
      markdown += fmt::format("    {:12} {}\n", name, std::get<double>(value));
    }
  }
  return markdown;
}

// The probe's fields without net.*, with rates instead of sums.
Record as_rates(const Record& probe) {
  Record rates{.kind = probe.kind, .step = probe.step, .time = probe.time};
  const double seconds = probe.number("seconds").value_or(0);
  for (const auto& [name, value] : probe.fields) {
    const auto* number = std::get_if<double>(&value);
    if (number == nullptr || name == "seconds" || name.starts_with("net.") || !(seconds > 0)) {
      continue;
    }
    const bool sum = merge_rule("probe", name) == Merge::sum;
    rates.add(sum ? name + "_per_second" : name, sum ? *number / seconds : *number);
  }
  return rates;
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
    : metrics_(metrics / fmt::format("{}.jsonl", rank), done.value_or(-1)), step_(done.value_or(0)) {
  if (rank == 0) {
    events_.emplace(events, done.value_or(-1) + 1);
  }
}

void RunLog::write(const Record& record) {
  if (record.kind == "probe") {
    Record probe = record;
    probe.step = step_;
    metrics_.write(probe);
    hold_probe(probe);
    return;
  }
  step_ = record.step;
  metrics_.write(record);
  write_events(record);
}

void RunLog::write_events(const Record& record) {
  if (!events_ || record.kind == "event") {
    return;
  }
  if (record.kind == "sample") {
    const auto index = static_cast<int64_t>(record.number("index").value_or(0));
    events_->write(text_event(record.time, record.step, fmt::format("sample/{}", index), as_markdown(record, false)));
  } else if (record.kind == "setup") {
    events_->write(text_event(record.time, record.step, "setup", as_markdown(record, true)));
  } else {
    write_scalars(record);
  }
}

void RunLog::write_scalars(const Record& record) {
  Scalars scalars;
  for (const auto& [key, value] : record.fields) {
    if (const auto* number = std::get_if<double>(&value)) {
      scalars.emplace_back(tag_of(record.kind, key), *number);
    }
  }
  if (!scalars.empty()) {
    events_->write(scalar_event(record.time, record.step, scalars));
  }
}

void RunLog::hold_probe(const Record& record) {
  if (!events_) {
    return;
  }
  probe_ = probe_ ? merged(*probe_, record) : record;
  if (probe_->number("seconds").value_or(0) >= kProbeSeconds) {
    write_scalars(as_rates(*probe_));
    probe_.reset();
  }
}

void RunLog::rewind(int64_t done) {
  metrics_.cut_after(done);
  probe_.reset();
  step_ = done;
  if (events_) {
    events_->write(restart_event(unix_time(), done + 1));
  }
}

void RunLog::hyperparameters(const Hyperparameters& values) {
  if (events_) {
    events_->write(hyperparameter_event(unix_time(), values));
  }
}

void RunLog::text(int64_t step, const std::string& tag, const std::string& markdown) {
  if (events_) {
    events_->write(text_event(unix_time(), step, tag, markdown));
  }
}

void RunLog::finish(bool success) {
  if (events_) {
    if (probe_) {
      write_scalars(as_rates(*probe_));
      probe_.reset();
    }
    events_->write(end_event(unix_time(), success));
  }
  sync();
}

}  // namespace tandem::observe
