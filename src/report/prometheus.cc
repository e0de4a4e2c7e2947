#include "report/prometheus.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "report/text.h"

namespace tandem {

namespace {

// In quotes: a label's value may hold any UTF-8.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : repaired_utf8(shortened(text, 512))) {
    result += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : std::string(1, c);
  }
  return result + "\"";
}

std::string number(double value) {
  return std::isnan(value) ? "NaN" : std::isinf(value) ? (value > 0 ? "+Inf" : "-Inf") : fmt::format("{}", value);
}

const TrainPoint* last_train(const RunReport& report) {
  const RankMetrics& m = report.run.main();
  return m.train.empty() ? nullptr : &m.train.back();
}

const ValidPoint* last_valid(const RunReport& report) {
  const RankMetrics& m = report.run.main();
  return m.valid.empty() ? nullptr : &m.valid.back();
}

struct Gauge {
  const char *name, *help;
  std::function<double(const RunReport&)> value;  // NaN = left out
};

Gauge of_training(const char* name, const char* help, double (*value)(const TrainPoint&)) {
  return {name, help, [value](const RunReport& r) { return last_train(r) ? value(*last_train(r)) : kUnknown; }};
}

Gauge of_validation(const char* name, const char* help, double ValidPoint::*value) {
  return {name, help, [value](const RunReport& r) { return last_valid(r) ? last_valid(r)->*value : kUnknown; }};
}

std::vector<Gauge> gauges() {
  return {
      {"tandem_step", "Optimizer steps done.",
       [](const RunReport& r) { return static_cast<double>(r.run.main().last_step()); }},
      {"tandem_last_record_seconds", "Unix time of the newest record.",
       [](const RunReport& r) { return r.run.main().last_time(); }},
      {"tandem_elapsed_seconds", "Seconds of training over all starts.",
       [](const RunReport& r) { return r.run.main().elapsed_seconds(); }},
      of_training("tandem_epoch", "Epochs done, with their fraction.", [](const TrainPoint& p) { return p.epoch; }),
      of_training("tandem_train_nll", "Training NLL, nats a target token, dropout on.",
                  [](const TrainPoint& p) { return p.nll; }),
      of_training("tandem_learning_rate", "Learning rate of the last step.",
                  [](const TrainPoint& p) { return p.learning_rate; }),
      of_training("tandem_gradient_norm", "Gradient norm of the last step, before clipping.",
                  [](const TrainPoint& p) { return p.gradient_norm; }),
      of_training("tandem_step_seconds", "Mean seconds of a step, validations and checkpoints not counted.",
                  [](const TrainPoint& p) { return p.steps > 0 ? p.step_seconds() / p.steps : kUnknown; }),
      of_training(
          "tandem_target_tokens_per_second", "Target tokens a second.",
          [](const TrainPoint& p) { return p.step_seconds() > 0 ? p.target_tokens / p.step_seconds() : kUnknown; }),
      of_validation("tandem_validation_nll", "Validation NLL, nats a target token.", &ValidPoint::nll),
      of_validation("tandem_training_sample_nll", "NLL of the training sample, scored like the validation.",
                    &ValidPoint::train_nll),
      of_validation("tandem_bleu", "BLEU of the last validation, 0 to 100.", &ValidPoint::bleu),
      of_validation("tandem_chrf", "chrF of the last validation, 0 to 100.", &ValidPoint::chrf),
  };
}

void add_head(std::string& text, const char* name, const char* help) {
  text += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n", name, help);
}

}  // namespace

std::string to_prometheus(std::span<const RunReport> reports) {
  std::string text;
  for (const Gauge& gauge : gauges()) {
    std::string lines;
    for (const RunReport& report : reports) {
      if (const double value = gauge.value(report); !std::isnan(value)) {
        lines += fmt::format("{}{{run={}}} {}\n", gauge.name, quoted(report.run.name), number(value));
      }
    }
    if (!lines.empty()) {
      add_head(text, gauge.name, gauge.help);
      text += lines;
    }
  }
  add_head(text, "tandem_verdict", "1 for the answer to each question.");
  for (const RunReport& report : reports) {
    for (const Answer& answer : report.answers) {
      text += fmt::format("tandem_verdict{{run={},question={},answer={},confidence={}}} 1\n", quoted(report.run.name),
                          quoted(answer.key), quoted(answer.verdict.label), quoted(name_of(answer.verdict.confidence)));
    }
  }
  add_head(text, "tandem_figure", "The numbers behind the answers.");
  for (const RunReport& report : reports) {
    for (const Answer& answer : report.answers) {
      for (const Figure& figure : answer.verdict.figures) {
        text += fmt::format("tandem_figure{{run={},question={},name={},unit={}}} {}\n", quoted(report.run.name),
                            quoted(answer.key), quoted(figure.name), quoted(figure.unit), number(figure.value));
      }
    }
  }
  return text;
}

}  // namespace tandem
