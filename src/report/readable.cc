#include <fmt/format.h>

#include <cmath>
#include <sstream>

#include "core/human.h"
#include "report/forms.h"
#include "report/text.h"

namespace tandem::report {

namespace {

constexpr size_t kRows = 40;  // rows of a table for people: a thousand validations would help nobody

std::string cell(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : std::isnan(value) ? "-" : "infinite";
}

// A page in Markdown or as plain text.
class Page {
 public:
  explicit Page(bool markdown) : markdown_(markdown) {}

  bool markdown() const { return markdown_; }
  const std::string& text() const { return text_; }
  std::string escaped(const std::string& outside) const {
    return markdown_ ? markdown_escaped(outside) : printable(outside);
  }
  void add(const std::string& text) { text_ += text; }
  void title(const std::string& outside) {
    text_ += fmt::format("{}{}{}\n\n", text_.empty() ? "" : "\n", markdown_ ? "# " : "", escaped(outside));
  }
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
  void answer(const Answer& a) {
    const std::string text = escaped(a.text), confidence = name_of(a.verdict.confidence);
    text_ += markdown_ ? fmt::format("- **{}** {} *(confidence: {})*\n", a.question, text, confidence)
                       : fmt::format("{}\n  {} (confidence: {})\n", a.question, text, confidence);
  }
  void sample(const observe::SamplePoint& s) {
    const char* next = markdown_ ? "  \n  " : "\n  ";
    text_ += fmt::format("{}source: {}{}reference: {}{}translation: {}\n", markdown_ ? "- " : "  ", escaped(s.source),
                         next, escaped(s.reference), next, escaped(s.translation));
  }

 private:
  bool markdown_;
  std::string text_;
};

void add_validations(Page& page, const observe::RankMetrics& m) {
  page.heading("Validations");
  page.table({"step", "NLL (nats)", "training sample", "BLEU", "BLEU, 95 %", "chrF", "seconds"});
  for (const observe::ValidPoint& p : some_validations(m, kRows)) {
    const bool known = std::isfinite(p.bleu_low) && std::isfinite(p.bleu_high);
    page.row({grouped(p.step), cell(p.nll, 4), cell(p.train_nll, 4), cell(p.bleu, 2),
              known ? fmt::format("{:.2f} to {:.2f}", p.bleu_low, p.bleu_high) : "-", cell(p.chrf, 2),
              cell(p.seconds, 1)});
  }
  page.add(m.bleu_signature.empty() ? "" : "\nBLEU " + page.escaped(m.bleu_signature) + "\n");
}

void add_split(Page& page, const observe::RankMetrics& m) {
  double all = 0;
  for (const auto& [name, seconds] : time_split(m)) {
    all += seconds;
  }
  page.heading("Where the time went");
  page.table({"part", "seconds", "ms a step", "share (%)"});
  for (const auto& [name, seconds] : time_split(m)) {
    if (!(seconds > 0)) {
      continue;
    }
    page.row({name, cell(seconds, 1), cell(1e3 * seconds / steps_in(m), 3), cell(100 * seconds / all, 1)});
  }
}

void add_training_set(Page& page, const observe::PreparedStats& s) {
  page.heading("Training set");
  page.table({"raw pairs", "pairs used", "copies of each", "source tokens", "target tokens"});
  page.row({cell(s.raw_pairs, 0), cell(s.train_pairs / s.copies, 0), cell(s.copies, 0), cell(s.source.tokens, 0),
            cell(s.target.tokens, 0)});
}

void add_settings(Page& page, const RunReport& report) {
  page.heading("Environment");
  for (const auto& [name, value] : environment_of(report)) {
    page.add(fmt::format("{}{}: {}\n", page.markdown() ? "- " : "  ", name, page.escaped(value)));
  }
  if (!page.markdown() || report.run.config.empty()) {
    return;
  }
  page.heading("Settings");
  std::istringstream lines(report.run.config);
  for (std::string line; std::getline(lines, line);) {
    page.add("    " + printable(line) + "\n");  // indented: nothing inside can end the block
  }
}

void add_run(Page& page, const RunReport& report) {
  const observe::RankMetrics& m = report.run.main();
  page.title(report.run.name);
  for (const Answer& answer : report.answers) {
    page.answer(answer);
  }
  if (!m.valid.empty()) {
    add_validations(page, m);
  }
  if (steps_in(m) > 0) {
    add_split(page, m);
  }
  if (report.run.stats) {
    add_training_set(page, *report.run.stats);
  }
  if (!m.samples.empty()) {
    page.heading("Samples of the last validation");
    for (const observe::SamplePoint& sample : last_samples(m)) {
      page.sample(sample);
    }
  }
  add_settings(page, report);
  page.add(fmt::format("\n{}\n", reading_notes(m)));
}

void add_comparison(Page& page, std::span<const RunReport> reports) {
  page.title("Runs side by side");
  std::vector<std::string> names = {"run", "step", "NLL (nats)", "BLEU"};
  for (const Answer& answer : reports.front().answers) {
    names.push_back(page.escaped(answer.key));
  }
  page.table(names);
  for (const RunReport& report : reports) {
    const observe::RankMetrics& m = report.run.main();
    const observe::ValidPoint last = m.valid.empty() ? observe::ValidPoint{} : m.valid.back();
    std::vector<std::string> cells = {page.escaped(report.run.name), grouped(m.last_step()), cell(last.nll, 4),
                                      cell(last.bleu, 2)};
    for (const Answer& answer : report.answers) {
      cells.push_back(page.escaped(answer.verdict.label));
    }
    page.row(cells);
  }
}

std::string written(std::span<const RunReport> reports, bool markdown) {
  Page page(markdown);
  if (reports.size() > 1) {
    add_comparison(page, reports);
  }
  for (const RunReport& report : reports) {
    add_run(page, report);
  }
  return page.text();
}

}  // namespace

std::string to_markdown(std::span<const RunReport> reports) { return written(reports, true); }
std::string to_text(std::span<const RunReport> reports) { return written(reports, false); }

}  // namespace tandem::report
