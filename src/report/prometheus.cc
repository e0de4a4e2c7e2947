#include <fmt/format.h>

#include <cmath>

#include "observe/metrics.h"
#include "report/forms.h"
#include "report/text.h"

namespace tandem::report {

namespace {

// A label's value in quotes; it may hold any UTF-8.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : repaired_utf8(observe::kept_text(text, 512))) {
    result += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : std::string(1, c);
  }
  return result + "\"";
}

std::string number(double value) {
  return std::isnan(value) ? "NaN" : std::isinf(value) ? (value > 0 ? "+Inf" : "-Inf") : fmt::format("{}", value);
}

void add_head(std::string& text, const std::string& name, const std::string& help) {
  text += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n", name, help);
}

// NaN values are left out.
template <class Value>
void add_gauge(std::string& text, std::span<const RunReport> reports, const std::string& name, const std::string& help,
               const Value& value_of) {
  std::string lines;
  for (const RunReport& report : reports) {
    if (const double value = value_of(report.run.main()); !std::isnan(value)) {
      lines += fmt::format("{}{{run={}}} {}\n", name, quoted(report.run.name), number(value));
    }
  }
  if (!lines.empty()) {
    add_head(text, name, help);
    text += lines;
  }
}

// The gauge's name: a few are not the prefix and the field's name.
std::string gauge_name(const std::string& name) {
  return name == "tandem_nll"               ? "tandem_train_nll"
         : name == "tandem_valid_nll"       ? "tandem_validation_nll"
         : name == "tandem_valid_train_nll" ? "tandem_training_sample_nll"
         : name == "tandem_valid_bleu"      ? "tandem_bleu"
         : name == "tandem_valid_chrf"      ? "tandem_chrf"
                                            : name;
}

double steps_of(const observe::TrainPoint& point) { return point.steps; }
double steps_of(const observe::ValidPoint&) { return 1; }

// Adds the fields of the newest point; sums become means per step, as points differ in their number of steps.
template <class Point>
void add_fields(std::string& text, std::span<const RunReport> reports, const std::string& prefix,
                std::span<const observe::Field<Point>> fields, std::vector<Point> observe::RankMetrics::*points) {
  for (const observe::Field<Point>& field : fields) {
    const bool a_step = field.merge == observe::Merge::sum || field.merge == observe::Merge::by_steps;
    if (field.name == "steps" || field.writer == observe::WrittenBy::merging) {
      continue;
    }
    const std::string unit = fmt::format("{}{}", field.unit, field.merge == observe::Merge::sum ? " a step" : "");
    const std::string help = fmt::format("{}: {}", field.name, field.meaning);
    add_gauge(text, reports, gauge_name(prefix + std::string(field.name)),
              unit.empty() ? help : fmt::format("{} ({})", help, unit), [&](const observe::RankMetrics& metrics) {
                if ((metrics.*points).empty()) {
                  return observe::kUnknown;
                }
                const Point& newest = (metrics.*points).back();
                return a_step ? field.of(newest) / steps_of(newest) : field.of(newest);
              });
  }
}

}  // namespace

std::string to_prometheus(std::span<const RunReport> reports) {
  std::string text;
  add_gauge(text, reports, "tandem_step", "Optimizer steps done.",
            [](const observe::RankMetrics& m) { return static_cast<double>(m.last_step()); });
  add_gauge(text, reports, "tandem_last_record_seconds", "Unix time of the newest record.",
            [](const observe::RankMetrics& m) { return m.last_time(); });
  add_fields<observe::TrainPoint>(text, reports, "tandem_", observe::kTrainFields, &observe::RankMetrics::train);
  add_fields<observe::ValidPoint>(text, reports, "tandem_valid_", observe::kValidFields, &observe::RankMetrics::valid);
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
      for (const observe::Figure& figure : answer.verdict.figures) {
        text += fmt::format("tandem_figure{{run={},question={},name={},unit={}}} {}\n", quoted(report.run.name),
                            quoted(answer.key), quoted(figure.name), quoted(figure.unit), number(figure.value));
      }
    }
  }
  return text;
}

}  // namespace tandem::report
