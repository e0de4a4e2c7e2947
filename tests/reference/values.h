// What the reference computes with: matrices of double. An op's views are read into them and the results written back,
// rounded to the view's type, so that the formulas know neither strides nor types.
#pragma once

#include <cmath>
#include <vector>

#include "backend/ops.h"
#include "core/philox.h"

namespace tandem::reference {

namespace op = backend::op;

// `value` as memory of a type holds it.
inline double rounded(double value, DType type) {
  return type == DType::f32    ? static_cast<double>(static_cast<float>(value))
         : type == DType::bf16 ? static_cast<double>(static_cast<float>(bf16(static_cast<float>(value))))
                               : value;
}

struct Values {
  int64_t rows = 0, cols = 0;
  std::vector<double> data;

  Values(int64_t r, int64_t c) : rows(r), cols(c), data(static_cast<size_t>(r * c)) {}  // zeros
  explicit Values(const ConstView& view);

  bool empty() const { return data.empty(); }  // also of a view that is absent
  double* row(int64_t r) { return data.data() + r * cols; }
  const double* row(int64_t r) const { return data.data() + r * cols; }
  double& operator()(int64_t r, int64_t c) { return row(r)[c]; }
  double operator()(int64_t r, int64_t c) const { return row(r)[c]; }
  View view() { return make_view(data.data(), DType::f64, rows, cols); }
};

// Calls body(element) for all elements of a view, row by row.
template <class AnyView, class Body>
void for_elements(const AnyView& view, const Body& body) {
  const auto walk = [&]<class T>(T) {
    for (int64_t r = 0; r < view.rows; ++r) {
      for (int64_t c = 0; c < view.cols; ++c) {
        body(view.template host<T>()[r * view.stride + c]);
      }
    }
  };
  switch (view.dtype) {
    case DType::f32:
      return walk(float{});
    case DType::bf16:
      return walk(bf16{});
    case DType::f64:
      return walk(double{});
    case DType::i32:
      return walk(int32_t{});
  }
}

inline Values::Values(const ConstView& view) : Values(view.rows, view.cols) {
  double* to = data.data();
  for_elements(view, [&](const auto& element) { *to++ = static_cast<double>(element); });
}

// Nothing where the view is absent.
inline void write(const View& view, const Values& values) {
  require(view.empty() || view.size() == std::ssize(values.data), "a view of another size than its values");
  const double* from = values.data.data();
  for_elements(view, [&]<class T>(T& element) {
    if constexpr (std::is_same_v<T, bf16>) {
      element = bf16(static_cast<float>(*from++));
    } else {
      element = static_cast<T>(*from++);
    }
  });
}

inline Values transposed(const Values& values) {
  Values result(values.cols, values.rows);
  for (int64_t r = 0; r < values.rows; ++r) {
    for (int64_t c = 0; c < values.cols; ++c) {
      result(c, r) = values(r, c);
    }
  }
  return result;
}

inline double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

// a b'. A few rows of `a` are taken at a time, so that those of `b` come from the cache.
inline Values product(const Values& a, const Values& b) {
  Values result(a.rows, b.rows);
  for (int64_t first = 0; first < a.rows; first += 16) {
    for (int64_t col = 0; col < b.rows; ++col) {
      for (int64_t row = first; row < std::min(first + 16, a.rows); ++row) {
        result(row, col) = dot(a.row(row), b.row(col), a.cols);
      }
    }
  }
  return result;
}

// Adds the sums over the rows of `values` to those in `sums`, or writes them over; nothing where the view is absent.
inline void add_column_sums(const View& sums, const Values& values, bool accumulate) {
  Values total = accumulate ? Values(sums) : Values(sums.rows, sums.cols);
  for (int64_t r = 0; !sums.empty() && r < values.rows; ++r) {
    for (int64_t c = 0; c < values.cols; ++c) {
      total(0, c) += values(r, c);
    }
  }
  write(sums, total);
}

// 1 / (1 - rate) where a column of a row is kept, 0 where it is dropped.
inline double mask(const backend::Dropout& dropout, int64_t row, int64_t col, int head = 0) {
  const auto threshold = static_cast<uint32_t>(std::lround(static_cast<double>(dropout.rate) * 65536));
  if (threshold == 0) {
    return 1;
  }
  const backend::StepState& state = *dropout.state;
  const uint32_t first = dropout.side == Side::source ? state.first_source : state.first_target;
  const Philox words = philox(state.seed, static_cast<uint32_t>(col / 8), first + static_cast<uint32_t>(row),
                              dropout.place + static_cast<uint32_t>(head), state.step);
  const uint32_t lane = (words[static_cast<size_t>(col % 8 / 2)] >> (col % 2 * 16)) & 0xFFFF;
  return lane >= threshold ? 1 / (1 - threshold / 65536.0) : 0;
}

}  // namespace tandem::reference
