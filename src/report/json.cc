#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "observe/metrics.h"
#include "report/curves.h"
#include "report/forms.h"

namespace tandem::report {

namespace {

using Json = nlohmann::ordered_json;
constexpr int kVersion = 2;

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// Six significant digits are more than a curve shows, and take half the bytes.
Json rounded(const std::vector<double>& values) {
  Json all = Json::array();
  for (const double value : values) {
    if (!std::isfinite(value)) {
      all.push_back(nullptr);
    } else if (value == std::floor(value) && std::fabs(value) < 0x1p53) {
      all.push_back(static_cast<int64_t>(value));
    } else {
      all.push_back(std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr));
    }
  }
  return all;
}

Json verdicts_json(const std::vector<Answer>& answers) {
  Json all = Json::array();
  for (const Answer& answer : answers) {
    Json figures = Json::object();
    for (const observe::Figure& figure : answer.verdict.figures) {
      figures[figure.name] = {{"value", finite(figure.value)}, {"unit", figure.unit}};
    }
    all.push_back({{"key", answer.key},
                   {"question", answer.question},
                   {"label", answer.verdict.label},
                   {"answer", answer.text},
                   {"confidence", name_of(answer.verdict.confidence)},
                   {"figures", figures}});
  }
  return all;
}

Json validations_json(const observe::RankMetrics& m, size_t most) {
  Json all = Json::array();
  for (const observe::ValidPoint& point : some_validations(m, most)) {
    Json validation = {{"step", point.step}, {"time", point.time}};
    for (const observe::Field<observe::ValidPoint>& field : observe::kValidFields) {
      if (field.member != nullptr) {
        validation[std::string(field.name)] = finite(field.of(point));
      }
    }
    all.push_back(std::move(validation));
  }
  return all;
}

// The last `most` points.
template <class Point>
std::span<const Point> newest(const std::vector<Point>& points, size_t most) {
  return std::span(points).last(std::min(points.size(), most));
}

Json samples_json(const observe::RankMetrics& m, const JsonDetail& detail) {
  Json all = Json::array();
  for (const observe::SamplePoint& s : newest(m.samples, detail.samples)) {
    all.push_back({{"step", s.step},
                   {"index", s.index},
                   {"source", observe::kept_text(s.source, detail.text_bytes)},
                   {"reference", observe::kept_text(s.reference, detail.text_bytes)},
                   {"translation", observe::kept_text(s.translation, detail.text_bytes)}});
  }
  return all;
}

Json events_json(const observe::RankMetrics& m, const JsonDetail& detail) {
  Json all = Json::array();
  for (const observe::EventPoint& e : newest(m.events, detail.events)) {
    all.push_back({{"step", e.step},
                   {"time", e.time},
                   {"event", observe::kept_text(e.event, detail.text_bytes)},
                   {"details", observe::kept_text(e.details, detail.text_bytes)}});
  }
  return all;
}

Json tables_json(const Curves& curves) {
  Json tables = Json::object();
  for (const Table& table : curves.tables) {
    Json columns = Json::object();
    for (const Column& column : table.columns) {
      columns[column.name]["mean"] = rounded(column.mean);
      if (!column.low.empty()) {
        columns[column.name]["low"] = rounded(column.low);
        columns[column.name]["high"] = rounded(column.high);
      }
    }
    tables[table.name] = {{"step", rounded(table.step)}, {"hours", rounded(table.hours)}, {"columns", columns}};
  }
  return tables;
}

Json charts_json(const Curves& curves) {
  Json charts = Json::array();
  for (const Chart& chart : curves.charts) {
    Json lines = Json::array();
    for (const Line& line : chart.lines) {
      lines.push_back({{"name", line.name}, {"table", line.table}, {"column", line.column}});
    }
    charts.push_back({{"key", chart.key},
                      {"title", chart.title},
                      {"unit", chart.unit},
                      {"note", chart.note},
                      {"stacked", chart.stacked},
                      {"lines", lines}});
  }
  return charts;
}

// Number of columns in all tables, with those of the ranges.
size_t columns_in(const Curves& curves) {
  size_t columns = 0;
  for (const Table& table : curves.tables) {
    columns += 2 + 3 * table.columns.size();
  }
  return columns;
}

Json run_json(const RunReport& report, size_t numbers, const JsonDetail& detail) {
  const observe::RankMetrics& m = report.run.main();
  const size_t columns = std::max<size_t>(1, columns_in(curves_of(report.run, report.plan, 1)));
  const size_t points = std::min(detail.points, std::max(size_t{2}, numbers / columns));
  const Curves curves = curves_of(report.run, report.plan, points);
  Json json = {{"run", report.run.name}, {"step", m.last_step()}, {"last_record", finite(m.last_time())}};
  json["verdicts"] = verdicts_json(report.answers);
  json["charts"] = charts_json(curves);
  json["tables"] = tables_json(curves);
  json["validations"] = validations_json(m, detail.validations);
  json["bleu_signature"] = m.bleu_signature;
  json["seconds"] = Json::object();
  for (const auto& [name, seconds] : time_split(m)) {
    json["seconds"][name] = finite(seconds);
  }
  json["steps"] = finite(steps_in(m));
  json["samples"] = samples_json(m, detail);
  json["events"] = events_json(m, detail);
  json["environment"] = Json::array();
  for (const auto& [name, value] : environment_of(report)) {
    json["environment"].push_back({{"name", name}, {"value", observe::kept_text(value, detail.text_bytes)}});
  }
  json["config"] = observe::kept_text(report.run.config, detail.config_bytes);
  json["reading"] = {{"ranks", report.run.ranks.size()}, {"lines", m.lines},           {"unreadable", m.unreadable},
                     {"out_of_order", m.out_of_order},   {"superseded", m.superseded}, {"notes", reading_notes(m)}};
  return json;
}

// Safe on the whole JSON: these characters occur only inside strings.
std::string fit_for_a_page(const std::string& json) {
  std::string text;
  text.reserve(json.size() + json.size() / 64);
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '<' || c == '>' || c == '&') {
      text += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else if (json.compare(i, 3, "\xE2\x80\xA8") == 0 || json.compare(i, 3, "\xE2\x80\xA9") == 0) {
      text += json[i + 2] == '\xA8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string to_json(std::span<const RunReport> reports, const JsonDetail& detail) {
  Json json = {{"format", "tandem report"}, {"version", kVersion}, {"tandem", TANDEM_VERSION}};
  json["time"] = reports.empty() ? 0 : reports.front().time;
  json["runs"] = Json::array();
  for (const RunReport& report : reports) {
    json["runs"].push_back(run_json(report, detail.numbers / reports.size(), detail));
  }
  return fit_for_a_page(json.dump(detail.indent, ' ', false, Json::error_handler_t::replace)) + "\n";
}

}  // namespace tandem::report
