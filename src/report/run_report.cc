#include "report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "observe/progress.h"
#include "observe/verdicts/how_long.h"
#include "observe/verdicts/learning_rate.h"
#include "observe/verdicts/nonfinite.h"
#include "observe/verdicts/overfitting.h"
#include "observe/verdicts/step_time.h"
#include "observe/verdicts/trained_enough.h"

namespace tandem {

namespace {

using Json = nlohmann::ordered_json;
constexpr int kVersion = 1;
constexpr size_t kRows = 40;  // of a table for people

// Through JSON, which replaces what is not UTF-8.
std::string valid_utf8(const std::string& text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

std::string cell(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : std::isnan(value) ? "-" : "infinite";
}

// The newest rows, evenly thinned but for the last; a table of a thousand validations helps nobody.
std::vector<ValidPoint> shown(const std::vector<ValidPoint>& points) {
  std::vector<ValidPoint> rows;
  const size_t stride = (points.size() + kRows - 1) / kRows;
  for (size_t i = 0; i < points.size(); ++i) {
    if ((points.size() - 1 - i) % stride == 0) {
      rows.push_back(points[i]);
    }
  }
  return rows;
}

std::vector<SamplePoint> last_samples(const RankMetrics& m) {
  std::vector<SamplePoint> samples;
  for (const SamplePoint& sample : m.samples) {
    if (sample.step == m.samples.back().step) {
      samples.push_back(sample);
    }
  }
  return samples;
}

TrainPoint sums_of(const RankMetrics& m) {
  TrainPoint sums;
  for (const TrainPoint& point : m.train) {
    sums.steps += point.steps;
    sums.compute_seconds += point.compute_seconds;
    sums.data_seconds += point.data_seconds;
    sums.checkpoint_seconds += point.checkpoint_seconds;
  }
  sums.validation_seconds = m.validation_seconds();
  return sums;
}

std::vector<std::pair<const char*, double>> split_of(const RankMetrics& m) {
  const TrainPoint sums = sums_of(m);
  return {{"compute", sums.compute_seconds},
          {"waiting for data", sums.data_seconds},
          {"validation", sums.validation_seconds},
          {"checkpoints", sums.checkpoint_seconds}};
}

std::string notes_of(const RankMetrics& m) {
  std::string notes = fmt::format("{} lines of metrics read", grouped(m.lines));
  const auto note = [&](int64_t count, const char* what) {
    notes += count > 0 ? fmt::format(", {} {}", grouped(count), what) : "";
  };
  note(m.unreadable, "left out as unreadable");
  note(m.out_of_order, "left out as out of order");
  note(m.superseded, "times back to an earlier step: what came after it then is superseded");
  return notes + ".";
}

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json verdicts_json(const std::vector<Verdict>& verdicts) {
  Json all = Json::array();
  for (const Verdict& v : verdicts) {
    Json figures = Json::object();
    for (const Figure& figure : v.figures) {
      figures[figure.name] = {{"value", finite(figure.value)}, {"unit", figure.unit}};
    }
    all.push_back({{"key", v.key},
                   {"question", v.question},
                   {"label", v.label},
                   {"answer", v.answer},
                   {"confidence", name_of(v.confidence)},
                   {"figures", figures}});
  }
  return all;
}

Json validations_json(const RankMetrics& m) {
  Json all = Json::array();
  for (const ValidPoint& p : m.valid) {
    all.push_back({{"step", p.step},
                   {"time", p.time},
                   {"nll", finite(p.nll)},
                   {"train_nll", finite(p.train_nll)},
                   {"accuracy", finite(p.accuracy)},
                   {"bleu", finite(p.bleu)},
                   {"chrf", finite(p.chrf)},
                   {"seconds", finite(p.seconds)},
                   {"elapsed_seconds", finite(p.elapsed_seconds)}});
  }
  return all;
}

// A page for people, in Markdown or as plain text.
class Page {
 public:
  explicit Page(bool markdown) : markdown_(markdown) {}

  std::string escaped(const std::string& outside) const {
    return markdown_ ? markdown_escaped(outside) : printable(outside);
  }
  void add(const std::string& text) { text_ += text; }
  void heading(const std::string& title) { text_ += (markdown_ ? "\n## " + title + "\n\n" : "\n" + title + "\n"); }
  void row(const std::vector<std::string>& cells) {
    for (const std::string& cell : cells) {
      text_ += markdown_ ? fmt::format("| {} ", cell) : fmt::format("  {:>16}", cell);
    }
    text_ += markdown_ ? "|\n" : "\n";
  }
  void table(const std::vector<std::string>& names) {
    row(names);
    if (markdown_) {
      row(std::vector<std::string>(names.size(), "---:"));
    }
  }
  void verdict(const Verdict& v) {
    const std::string answer = escaped(v.answer), confidence = name_of(v.confidence);
    text_ += markdown_ ? fmt::format("- **{}** {} *(confidence: {})*\n", v.question, answer, confidence)
                       : fmt::format("{}\n  {} (confidence: {})\n", v.question, answer, confidence);
  }
  void sample(const SamplePoint& s) {
    const char* next = markdown_ ? "  \n  " : "\n  ";
    text_ += fmt::format("{}source: {}{}reference: {}{}translation: {}\n", markdown_ ? "- " : "  ", escaped(s.source),
                         next, escaped(s.reference), next, escaped(s.translation));
  }
  const std::string& text() const { return text_; }

 private:
  bool markdown_;
  std::string text_;
};

void add_validations(Page& page, const RankMetrics& m) {
  page.heading("Validations");
  page.table({"step", "NLL (nats)", "training sample", "BLEU", "chrF", "seconds"});
  for (const ValidPoint& p : shown(m.valid)) {
    page.row(
        {grouped(p.step), cell(p.nll, 4), cell(p.train_nll, 4), cell(p.bleu, 2), cell(p.chrf, 2), cell(p.seconds, 1)});
  }
  page.add(m.bleu_signature.empty() ? "" : "\nBLEU " + page.escaped(m.bleu_signature) + "\n");
}

void add_split(Page& page, const RankMetrics& m) {
  double all = 0;
  for (const auto& [name, seconds] : split_of(m)) {
    all += seconds;
  }
  const double steps = sums_of(m).steps;
  page.heading("Where the time went");
  page.table({"part", "seconds", "ms a step", "share (%)"});
  for (const auto& [name, seconds] : split_of(m)) {
    page.row({name, cell(seconds, 1), cell(1e3 * seconds / steps, 3), cell(100 * seconds / all, 1)});
  }
}

// Everything but the config.
std::string body(const RunReport& report, bool markdown) {
  const RankMetrics& m = report.run.main();
  Page page(markdown);
  for (const Verdict& v : report.verdicts) {
    page.verdict(v);
  }
  if (!m.valid.empty()) {
    add_validations(page, m);
  }
  if (sums_of(m).steps > 0) {
    add_split(page, m);
  }
  if (report.run.stats) {
    page.heading("Training set");
    page.table({"raw pairs", "pairs used", "source tokens", "target tokens"});
    const PreparedStats& s = *report.run.stats;
    page.row({cell(s.raw_pairs, 0), cell(s.train_pairs, 0), cell(s.source_tokens, 0), cell(s.target_tokens, 0)});
  }
  if (!m.samples.empty()) {
    page.heading("Samples of the last validation");
    for (const SamplePoint& sample : last_samples(m)) {
      page.sample(sample);
    }
  }
  return page.text();
}

}  // namespace

std::string printable(const std::string& text) {
  std::string result;
  const std::string valid = valid_utf8(text);
  for (size_t i = 0; i < valid.size(); ++i) {
    const auto byte = static_cast<unsigned char>(valid[i]);
    const bool c1 = byte == 0xC2 && i + 1 < valid.size() && static_cast<unsigned char>(valid[i + 1]) < 0xA0;
    if (byte < 0x20 || byte == 0x7F || c1) {
      result += byte == '\n' || byte == '\t' ? " " : "\xEF\xBF\xBD";
      i += c1 ? 1 : 0;
    } else {
      result += valid[i];
    }
  }
  return result;
}

std::string markdown_escaped(const std::string& text) {
  std::string result;
  for (const char c : printable(text)) {
    if (c == '<' || c == '>' || c == '&') {
      result += c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;";
    } else {
      result += std::string_view("\\`*_{}[]#|!~").find(c) != std::string_view::npos ? "\\" : "";
      result += c;
    }
  }
  return result;
}

RunReport make_report(RunData run, const RunPlan& plan, double now, double price_per_hour) {
  RunReport report{.run = std::move(run), .verdicts = {}, .time = now};
  report.verdicts = {how_long(report.run, plan, now, price_per_hour),
                     trained_enough(report.run),
                     overfitting(report.run),
                     step_time(report.run),
                     learning_rate_explained(report.run, plan),
                     nonfinite(report.run)};
  return report;
}

std::string to_markdown(const RunReport& report) {
  std::string text = fmt::format("# {}\n\n", markdown_escaped(report.run.name)) + body(report, true);
  if (!report.run.config.empty()) {
    text += "\n## Settings\n\n";
    std::istringstream lines(report.run.config);
    for (std::string line; std::getline(lines, line);) {
      text += "    " + printable(line) + "\n";  // indented: nothing inside can end the block
    }
  }
  return text + "\n" + notes_of(report.run.main()) + "\n";
}

std::string to_text(const RunReport& report) {
  return printable(report.run.name) + "\n\n" + body(report, false) + "\n" + notes_of(report.run.main()) + "\n";
}

std::string to_json(const RunReport& report) {
  const RankMetrics& m = report.run.main();
  Json json = {{"format", "tandem report"}, {"version", kVersion}, {"run", report.run.name}, {"time", report.time}};
  json["verdicts"] = verdicts_json(report.verdicts);
  json["validations"] = validations_json(m);
  json["bleu_signature"] = m.bleu_signature;
  json["seconds"] = Json::object();
  for (const auto& [name, seconds] : split_of(m)) {
    json["seconds"][name] = finite(seconds);
  }
  json["samples"] = Json::array();
  for (const SamplePoint& s : last_samples(m)) {
    json["samples"].push_back({{"step", s.step},
                               {"index", s.index},
                               {"source", s.source},
                               {"reference", s.reference},
                               {"translation", s.translation}});
  }
  json["config"] = report.run.config;
  json["reading"] = {{"ranks", report.run.ranks.size()},
                     {"lines", m.lines},
                     {"unreadable", m.unreadable},
                     {"out_of_order", m.out_of_order},
                     {"superseded", m.superseded}};
  std::string text;
  for (const char c : json.dump(2, ' ', false, Json::error_handler_t::replace)) {
    // Only texts hold these; so the file may stand inside a page.
    if (c == '<' || c == '>' || c == '&') {
      text += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      text += c;
    }
  }
  return text + "\n";
}

}  // namespace tandem
