// Reports for machines (docs/formats.md, "Report"), and for the page, which draws what it finds there.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "report/run_report.h"

namespace tandem::report {

// How much goes in; the defaults are those of report.json.
struct JsonDetail {
  size_t numbers = 2'000'000;  // of all curves together
  size_t points = 4000;        // of one curve
  size_t validations = SIZE_MAX;
  size_t samples = 256;         // sentences, the newest
  size_t events = 4096;         // the newest
  size_t text_bytes = 1 << 12;  // of one sentence or event
  size_t config_bytes = 1 << 20;
  int indent = 2;  // -1 = all in one line
};

// Valid inside a <script> of a page: <, >, & and the line separators of JavaScript are escaped. No NaN: null.
std::string to_json(std::span<const RunReport> reports, const JsonDetail& detail = {});

inline std::string to_json(const RunReport& report) { return to_json(std::span(&report, 1)); }

}  // namespace tandem::report
