// Comparisons for tests, written so that NaN fails, and that say where and by how much two results differ.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <type_traits>

#include "core/philox.h"

namespace tandem::testing {

// |a - b| <= absolute + relative * max(|a|, |b|) for every element; also fails when everything compared is zero.
template <class A, class B>
::testing::AssertionResult close(std::span<A> actual, std::span<B> expected, double absolute, double relative) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure() << "sizes " << actual.size() << " and " << expected.size();
  }
  size_t wrong = 0, worst = 0;
  double worst_error = -1, largest = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = static_cast<double>(actual[i]);
    const double b = static_cast<double>(expected[i]);
    const double error = std::fabs(a - b);
    const bool good = error <= absolute + relative * std::fmax(std::fabs(a), std::fabs(b));
    largest = std::fmax(largest, std::fabs(b));
    if (!good) {
      ++wrong;
      if (!(error <= worst_error)) {
        worst_error = error;
        worst = i;
      }
    }
  }
  if (wrong > 0) {
    return ::testing::AssertionFailure() << wrong << " of " << actual.size() << " differ; worst at " << worst << ": "
                                         << static_cast<double>(actual[worst]) << " instead of "
                                         << static_cast<double>(expected[worst]);
  }
  if (!actual.empty() && !(largest > 0)) {
    return ::testing::AssertionFailure() << "all " << actual.size() << " expected values are zero: nothing compared";
  }
  return ::testing::AssertionSuccess();
}

// Uniform in [-1, 1), the same for the same seed.
template <class T>
void fill_random(std::span<T> values, uint32_t seed) {
  PhiloxStream random(20240229, 7, seed);
  for (T& value : values) {
    value = static_cast<T>(2.0F * uniform(random.next()) - 1.0F);
  }
}

// d f / d x by central differences, for each element of x; f reads x through its own reference.
inline void numeric_gradient(std::span<double> gradient, std::span<double> x, const std::function<double()>& f,
                             double step = 1e-5) {
  for (size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + step;
    const double above = f();
    x[i] = kept - step;
    const double below = f();
    x[i] = kept;
    gradient[i] = (above - below) / (2 * step);
  }
}

}  // namespace tandem::testing
