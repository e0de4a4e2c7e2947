// Matrices for the tests of the ops, and the runs at several thread counts.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "compare.h"

namespace tandem::testing {

template <class T>
using MasterOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// An owned matrix. Random values are representable in bf16, so that runs in every type begin with the same numbers.
template <class T>
struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<T> data;

  Matrix(int64_t r, int64_t c) : rows(r), cols(c), data(static_cast<size_t>(r * c)) {}

  static Matrix random(int64_t r, int64_t c, uint32_t seed, double scale = 1) {
    Matrix matrix(r, c);
    std::vector<float> values(matrix.data.size());
    fill_random(std::span(values), seed);
    std::transform(values.begin(), values.end(), matrix.data.begin(), [scale](float value) {
      return static_cast<T>(static_cast<float>(bf16(static_cast<float>(value * scale))));
    });
    return matrix;
  }

  static Matrix filled(int64_t r, int64_t c, double value) {
    Matrix matrix(r, c);
    std::fill(matrix.data.begin(), matrix.data.end(), static_cast<T>(static_cast<float>(value)));
    return matrix;
  }

  View view() { return make_view(data.data(), dtype_of<T>(), rows, cols); }
  std::span<T> span() { return data; }
  T* row(int64_t r) { return data.data() + r * cols; }
};

struct Size {
  int64_t rows, cols;
};

// A list of one gradient, which must outlive it.
inline std::span<const backend::WeightGradient> one(const backend::WeightGradient& gradient) { return {&gradient, 1}; }

// *update as a step prepares it from flat gradients. sum: f64 [1, 1] in the backend's memory.
inline void prepare_update(backend::Backend& backend, backend::UpdateState* update, const View& sum,
                           const ConstView& gradients, const backend::UpdateSettings& settings) {
  backend.run(backend::op::SumOfSquares{.sum = sum, .x = gradients});
  backend.run(backend::op::PrepareUpdate{.update = update, .sums = sum, .settings = settings});
}

inline View ints(std::vector<int32_t>& values) {
  return make_view(values.data(), DType::i32, 1, static_cast<int64_t>(values.size()));
}

// The rows of each token id, in the order of the ids.
struct Order {
  std::vector<int32_t> rows, ids, starts;

  explicit Order(const std::vector<int32_t>& tokens) : rows(tokens.size()) {
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = static_cast<int32_t>(i);
    }
    std::stable_sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) {
      return tokens[static_cast<size_t>(a)] < tokens[static_cast<size_t>(b)];
    });
    for (size_t i = 0; i < rows.size(); ++i) {
      const int32_t id = tokens[static_cast<size_t>(rows[i])];
      if (ids.empty() || ids.back() != id) {
        ids.push_back(id);
        starts.push_back(static_cast<int32_t>(i));
      }
    }
    starts.push_back(static_cast<int32_t>(rows.size()));
  }

  backend::TokenOrder view() { return {ints(rows), ints(ids), ints(starts)}; }
};

// Everything an op wrote, as doubles, one part after the other.
using Results = std::vector<double>;

template <class T>
void append(Results& results, const std::vector<T>& values) {
  for (const T& value : values) {
    if constexpr (std::is_same_v<T, bf16>) {
      results.push_back(static_cast<double>(static_cast<float>(value)));
    } else {
      results.push_back(static_cast<double>(value));
    }
  }
}

inline ::testing::AssertionResult all_close(const Results& actual, const Results& expected, double absolute,
                                            double relative) {
  return close(std::span(actual), std::span(expected), absolute, relative);
}

// run(backend) must give the same bits at every number of threads.
template <class Run>
void expect_same_bits_at_any_thread_count(const Run& run) {
  const Results one = run(*backend::make_cpu_backend(1));
  ASSERT_FALSE(one.empty());
  for (const int threads : {2, 3, 4, 8, 16}) {
    const Results many = run(*backend::make_cpu_backend(threads));
    ASSERT_EQ(many.size(), one.size());
    EXPECT_EQ(std::memcmp(many.data(), one.data(), one.size() * sizeof(double)), 0) << threads << " threads";
  }
}

inline double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

}  // namespace tandem::testing
