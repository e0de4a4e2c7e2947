// The report as one self-contained HTML file: code, style and data inside, nothing loaded from anywhere, and a policy
// that lets only its own code run. All data travels as JSON and becomes text in the page, never markup.
#pragma once

#include <span>
#include <string>

#include "report/run_report.h"

namespace tandem::report {

constexpr size_t kLargestPage = 2'000'000;  // bytes

std::string to_html(std::span<const RunReport> reports);

// The same page for `tandem watch`: it holds no data, asks its server for data.json and listens to events.
std::string live_page();

// What a live page draws: the JSON inside to_html().
std::string page_data(std::span<const RunReport> reports);

// Of the page; `live` also lets it talk to its server.
std::string content_security_policy(bool live);

}  // namespace tandem::report
