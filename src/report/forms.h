// A report in each of its forms. Texts from outside never become markup, and reach no terminal as control characters.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "report/run_report.h"

namespace tandem::report {

// ---- for people without a browser

// One run after another; if there are several, a table that compares them comes first.
std::string to_markdown(std::span<const RunReport> reports);
std::string to_text(std::span<const RunReport> reports);

inline std::string to_markdown(const RunReport& report) { return to_markdown(std::span(&report, 1)); }
inline std::string to_text(const RunReport& report) { return to_text(std::span(&report, 1)); }

// ---- for `tandem watch --text`

// One line about a run, for a file or pipe: name, step, losses, how long.
std::string watch_line(const RunReport& report);

// A whole screen of at most `rows` lines of at most `columns` characters: one run with its answers, several with a line
// each.
std::string watch_screen(std::span<const RunReport> reports, int columns, int rows);

// There is a run, and all runs have ended.
bool all_ended(std::span<const RunReport> reports);

// ---- for machines (docs/formats.md, "Report"), and for the page, which draws what it finds there

// Limits of what the JSON holds; the defaults are those of report.json.
struct JsonDetail {
  size_t numbers = 2'000'000;  // numbers in all curves together
  size_t points = 4000;        // points of a curve
  size_t validations = SIZE_MAX;
  size_t samples = 256;         // the newest sample sentences
  size_t events = 4096;         // the newest events
  size_t text_bytes = 1 << 12;  // length of a sentence or event
  size_t config_bytes = 1 << 20;
  int indent = 2;  // -1 = all in one line
};

// Valid inside a <script> of a page: <, >, & and the line separators of JavaScript are escaped. NaN becomes null.
std::string to_json(std::span<const RunReport> reports, const JsonDetail& detail = {});

inline std::string to_json(const RunReport& report) { return to_json(std::span(&report, 1)); }

// Prometheus's text format, version 0.0.4.
std::string to_prometheus(std::span<const RunReport> reports);

// ---- the page: one self-contained HTML file with code, style and data inside, nothing loaded from anywhere, and a
// policy that lets only its own code run. All data travels as JSON and becomes text in the page, never markup.

constexpr size_t kLargestPage = 2'000'000;  // bytes

std::string to_html(std::span<const RunReport> reports);

// The same page for `tandem watch`: it holds no data, asks its server for data.json and listens to events.
std::string live_page();

// What a live page draws: the JSON inside to_html().
std::string page_data(std::span<const RunReport> reports);

// The page's policy; `live` also lets it talk to its server.
std::string content_security_policy(bool live);

}  // namespace tandem::report
