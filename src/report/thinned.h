// Series made shorter without hiding their peaks.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "report/curves.h"

namespace tandem::report {

// One curve of a kind of point.
template <class Point>
struct Curve {
  const char* column = nullptr;
  double (*value)(const Point&) = nullptr;
  double (*weight)(const Point&) = nullptr;  // in a mean
  // Ends of the value's interval, where it has one.
  double (*low)(const Point&) = nullptr;
  double (*high)(const Point&) = nullptr;
};

// Neighbours that become one point of the page.
constexpr size_t points_together(size_t points, size_t most) {
  return std::max<size_t>(1, (points + most - 1) / std::max<size_t>(1, most));
}

// Calls body(neighbours) for every point of the page.
template <class Point, class Body>
void for_each_group(const std::vector<Point>& points, size_t most, const Body& body) {
  const size_t together = points_together(points.size(), most);
  for (size_t begin = 0; begin < points.size(); begin += together) {
    body(std::span(points).subspan(begin, std::min(together, points.size() - begin)));
  }
}

// What is not finite is left out.
template <class Point>
Column thinned(const Curve<Point>& curve, const std::vector<Point>& points, size_t most) {
  Column column{.name = curve.column, .mean = {}, .low = {}, .high = {}};
  bool several = false;
  for_each_group(points, most, [&](std::span<const Point> group) {
    double sum = 0, weights = 0, low = observe::kUnknown, high = observe::kUnknown;
    for (const Point& point : group) {
      const double value = curve.value(point), weight = curve.weight(point);
      if (std::isfinite(value) && weight > 0) {
        sum += value * weight;
        weights += weight;
        low = std::fmin(low, curve.low != nullptr ? std::fmin(curve.low(point), value) : value);
        high = std::fmax(high, curve.high != nullptr ? std::fmax(curve.high(point), value) : value);
      }
    }
    several = several || low < high;
    column.mean.push_back(weights > 0 && std::isfinite(sum) ? sum / weights : observe::kUnknown);
    column.low.push_back(low);
    column.high.push_back(high);
  });
  if (!several) {
    column.low.clear();
    column.high.clear();
  }
  return column;
}

}  // namespace tandem::report
