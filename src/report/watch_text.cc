#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/human.h"
#include "report/forms.h"
#include "report/text.h"

namespace tandem::report {

namespace {

size_t width_of(const std::string& text) {  // characters, not bytes
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// Lines of at most `columns` characters, the second and later ones indented; longer words are cut.
std::vector<std::string> wrapped(const std::string& text, size_t columns, const std::string& indent) {
  std::vector<std::string> lines;
  std::string line;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    while (width_of(word) > columns - indent.size()) {
      word.pop_back();
    }
    if (!line.empty() && width_of(line) + 1 + width_of(word) > columns) {
      lines.push_back(line);
      line = indent + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  lines.push_back(line);
  return lines;
}

const Answer* how_long_of(const RunReport& report) {
  const auto found = std::ranges::find(report.answers, "how_long", &Answer::key);
  return found == report.answers.end() ? nullptr : &*found;
}

}  // namespace

std::string watch_line(const RunReport& report) {
  const observe::RankMetrics& m = report.run.main();
  std::string line = fmt::format("{}: step {}", printable(report.run.name), grouped(m.last_step()));
  const auto add = [&](const char* name, double value, int digits) {
    line += std::isfinite(value) ? fmt::format("  {} {:.{}f}", name, value, digits) : "";
  };
  if (!m.train.empty()) {
    add("training NLL", m.train.back().nll, 4);
  }
  if (!m.valid.empty()) {
    add("validation NLL", m.valid.back().nll, 4);
    add("BLEU", m.valid.back().bleu, 2);
  }
  const Answer* how_long = how_long_of(report);
  return line + (how_long == nullptr ? "" : "  " + printable(how_long->text));
}

std::string watch_screen(std::span<const RunReport> reports, int columns, int rows) {
  const auto width = static_cast<size_t>(std::clamp(columns, 20, 400));
  std::vector<std::string> lines;
  const auto add = [&](const std::string& text) {
    std::ranges::move(wrapped(text, width, "    "), std::back_inserter(lines));
  };
  if (reports.empty()) {
    add("There is no run here yet.");
  }
  for (const RunReport& report : reports) {
    add(watch_line(report));
    for (const Answer& answer : report.answers) {
      if (reports.size() == 1 && answer.key != "how_long") {
        add(fmt::format("{} {}", printable(answer.question), printable(answer.text)));
      }
    }
  }
  if (const auto most = static_cast<size_t>(std::max(rows, 2)); lines.size() > most) {
    const size_t hidden = lines.size() - most + 1;
    lines.resize(most - 1);
    lines.push_back(fmt::format("... {} more lines: a larger window shows them", hidden));
  }
  std::string screen;
  for (const std::string& line : lines) {
    screen += line + "\n";
  }
  return screen;
}

bool all_ended(std::span<const RunReport> reports) {
  return !reports.empty() && std::ranges::all_of(reports, &RunReport::ended);
}

}  // namespace tandem::report
