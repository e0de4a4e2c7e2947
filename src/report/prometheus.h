// Reports in Prometheus's text format, version 0.0.4.
#pragma once

#include <span>
#include <string>

#include "report/run_report.h"

namespace tandem::report {

std::string to_prometheus(std::span<const RunReport> reports);

}  // namespace tandem::report
