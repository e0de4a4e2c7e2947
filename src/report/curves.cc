#include "report/curves.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "report/probe_curves.h"
#include "report/training_curves.h"

namespace tandem::report {

namespace {

bool has_values(const Column& column) {
  return std::any_of(column.mean.begin(), column.mean.end(), [](double value) { return std::isfinite(value); });
}

bool is_zero(const Column& column) {
  return std::all_of(column.mean.begin(), column.mean.end(), [](double value) { return !(value != 0); });
}

const Column* find(const Curves& curves, const Line& line) {
  for (const Table& table : curves.tables) {
    for (const Column& column : table.columns) {
      if (table.name == line.table && column.name == line.column) {
        return &column;
      }
    }
  }
  return nullptr;
}

}  // namespace

Curves curves_of(const observe::RunData& run, const observe::RunPlan& plan, size_t most_points) {
  Curves curves{.tables = {train_table(run.main(), plan, most_points), valid_table(run.main(), most_points)},
                .charts = {}};
  for (const observe::RankMetrics& rank : run.ranks) {
    if (run.ranks.size() > 1) {
      curves.tables.push_back(rank_table(rank, most_points));
    }
    curves.tables.push_back(probe_table(rank, run.main(), most_points));
  }
  for (Table& table : curves.tables) {
    std::erase_if(table.columns, [](const Column& column) { return !has_values(column); });
  }
  std::erase_if(curves.tables, [](const Table& table) { return table.columns.empty(); });
  std::vector<Chart> charts = training_charts(run);
  std::ranges::move(probe_charts(run), std::back_inserter(charts));
  for (Chart& chart : charts) {
    std::erase_if(chart.lines, [&](const Line& line) {
      const Column* column = find(curves, line);
      return column == nullptr || (chart.stacked && is_zero(*column));  // a part that never took time
    });
    if (!chart.lines.empty()) {
      curves.charts.push_back(std::move(chart));
    }
  }
  return curves;
}

}  // namespace tandem::report
