// The curves of a run for a page: a few thousand points however long the run, and charts that say which curves belong
// together. The page draws whatever charts it is given.
//
// A point of a curve may stand for several measurements: it is then their mean, and the least and the greatest of them
// are kept beside it, so that no peak is lost.
#pragma once

#include <string>
#include <vector>

#include "observe/run_reader.h"
#include "observe/verdicts/verdict.h"

namespace tandem::report {

struct Column {
  std::string name;
  std::vector<double> mean;       // NaN = not known
  std::vector<double> low, high;  // their range or interval; empty if every point is one measurement
};

// Columns over the same steps.
struct Table {
  std::string name;
  std::vector<double> step;
  std::vector<double> hours;  // hours of training, or since the first record
  std::vector<Column> columns;
};

struct Line {
  std::string name;  // name in the legend
  std::string table, column;
};

struct Chart {
  std::string key, title, unit, note;
  bool stacked = false;
  std::vector<Line> lines;
};

struct Curves {
  std::vector<Table> tables;
  std::vector<Chart> charts;  // only those with points
};

// Each curve has at most `most_points` points.
Curves curves_of(const observe::RunData& run, const observe::RunPlan& plan, size_t most_points);

}  // namespace tandem::report
