// What a case of an op's test works with: a backend's memory, filled with the same values on every backend, and the
// outputs that are compared.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "backend/matrix.h"

namespace tandem::testing {

// The types of a device's compute values, masters and gradients, as in backend/ops.h.
struct Types {
  DType c = DType::bf16, m = DType::f32, g = DType::f32;
};

// A matrix that may be columns of a wider one. Converts to the views that an op gets.
struct Room {
  View whole, inner;

  operator const View&() const { return inner; }
  operator ConstView() const { return inner; }
  operator backend::Weight() const { return inner; }

  Room rows(int64_t begin, int64_t count) const {
    return {whole.slice_rows(begin, count), inner.slice_rows(begin, count)};
  }
  int64_t margin() const { return (whole.cols - inner.cols) / 2; }
};

constexpr float kMarginValue = 7;  // in the columns around an output that is poisoned

// How far an output in or from bf16 may be from the formula, if not as far as the table in op_test.h says.
struct Bound {
  double absolute = -1;
  double relative = -1;
  double of_norm = 0;        // instead: of the difference's norm to the expected values'
  bool exact = false;        // in every type
  bool exact_zeros = false;  // what is 0 by the formula is 0: masks are the same
  bool zeros = false;        // all of it may be 0
};
constexpr Bound kExact{.exact = true, .zeros = true};

struct Output {
  std::string name;
  DType type;
  Results values;
  Bound bound;
};

// All values are representable in bf16. `margin` columns of a wider matrix lie on both sides of a view.
class Lab {
 public:
  explicit Lab(backend::Backend& backend, const Types& types = {}) : backend_(backend), types_(types) {}
  Lab(const Lab&) = delete;

  backend::Backend& backend() { return backend_; }
  const Types& types() const { return types_; }
  const std::vector<Output>& outputs() const { return outputs_; }

  // Matrices of one type.
  class Shelf {
   public:
    Room random(int64_t rows, int64_t cols, uint32_t seed, double scale = 1, int64_t margin = 0) {
      return put(made(rows, cols + 2 * margin, seed, scale), margin);
    }
    // NaN, which an op must write over.
    Room poisoned(int64_t rows, int64_t cols, int64_t margin = 0) {
      auto matrix = Matrix<float>::filled(rows, cols + 2 * margin, kMarginValue);
      for (int64_t r = 0; r < rows; ++r) {
        std::fill_n(matrix.row(r) + margin, cols, std::numeric_limits<float>::quiet_NaN());
      }
      return put(matrix, margin);
    }
    Room zeros(int64_t rows, int64_t cols) { return put(Matrix<float>(rows, cols)); }
    Room put(const Matrix<float>& matrix, int64_t margin = 0) {
      const View whole = lab_.put_as(type_, matrix.data, matrix.rows, matrix.cols);
      return {whole, whole.slice_cols(margin, matrix.cols - 2 * margin)};
    }

   private:
    friend class Lab;
    // A case has the same matrices on several backends: they are made once.
    static const Matrix<float>& made(int64_t rows, int64_t cols, uint32_t seed, double scale) {
      static std::map<std::tuple<int64_t, int64_t, uint32_t, double>, Matrix<float>> all;
      static int64_t elements = 0;
      const std::tuple key(rows, cols, seed, scale);
      if (!all.contains(key)) {
        if (elements > 50'000'000) {
          all.clear();
          elements = 0;
        }
        all.emplace(key, Matrix<float>::random(rows, cols, seed, scale));
        elements += rows * cols;
      }
      return all.at(key);
    }
    Shelf(Lab& lab, DType type) : lab_(lab), type_(type) {}
    Lab& lab_;
    DType type_;
  };
  Shelf of(DType type) { return {*this, type}; }
  View put_sum() { return put(std::vector<double>{-1}, 1, 1); }  // room for an f64
  Shelf c() { return of(types_.c); }
  Shelf m() { return of(types_.m); }
  Shelf g() { return of(types_.g); }

  View put_as(DType type, const std::vector<float>& values, int64_t rows, int64_t cols) {
    switch (type) {
      case DType::bf16:
        return put(std::vector<bf16>(values.begin(), values.end()), rows, cols);
      case DType::f64:
        return put(std::vector<double>(values.begin(), values.end()), rows, cols);
      default:
        return put(values, rows, cols);
    }
  }
  template <class T>
  View put(const std::vector<T>& values, int64_t rows, int64_t cols) {
    const View view = take(dtype_of<T>(), rows, cols);
    backend_.upload(view, values.data());
    return view;
  }
  View put(const std::vector<int32_t>& values) { return put(values, 1, static_cast<int64_t>(values.size())); }
  View poisoned_ints(int64_t rows, int64_t cols) {
    return put(std::vector<int32_t>(static_cast<size_t>(rows * cols), -77777), rows, cols);
  }

  // A struct in the backend's memory.
  template <class S>
  S* put_struct(const S& value) {
    const View view = words<S>(take(DType::i32, 1, sizeof(S) / 4).data);
    backend_.upload(view, &value);
    return static_cast<S*>(view.data);
  }
  template <class S>
  void change(S* place, const S& value) {
    backend_.upload(words<S>(place), &value);
  }
  template <class S>
  S get(const S* place) {
    S value;
    backend_.download(&value, words<S>(const_cast<S*>(place)));
    return value;
  }

  template <class T>
  std::vector<T> values(const View& view) {  // contiguous
    std::vector<T> result(static_cast<size_t>(view.size()));
    backend_.download(result.data(), view);
    return result;
  }
  // All of a contiguous view as doubles.
  Results values(const View& view) {
    Results results;
    switch (view.dtype) {
      case DType::bf16:
        append(results, values<bf16>(view));
        break;
      case DType::f32:
        append(results, values<float>(view));
        break;
      case DType::f64:
        append(results, values<double>(view));
        break;
      case DType::i32:
        append(results, values<int32_t>(view));
    }
    return results;
  }

  // An output of the case, as it is now; what lies beside it must be what the reference leaves there.
  void give(const std::string& name, const Room& room, const Bound& bound = {}) {
    Output inner{name, room.inner.dtype, {}, bound}, beside{"beside " + name, room.inner.dtype, {}, kExact};
    const Results all = values(room.whole);
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t col = static_cast<int64_t>(i) % room.whole.cols - room.margin();
      (col >= 0 && col < room.inner.cols ? inner : beside).values.push_back(all[i]);
    }
    outputs_.push_back(std::move(inner));
    outputs_.push_back(std::move(beside));
  }
  void give_ints(const std::string& name, const View& view) {
    outputs_.push_back({name, DType::i32, values(view), kExact});
  }
  void give(const std::string& name, const Results& numbers, const Bound& bound = {}) {
    outputs_.push_back({name, DType::f64, numbers, bound});
  }

 private:
  View take(DType dtype, int64_t rows, int64_t cols) {
    buffers_.push_back(backend_.allocate(static_cast<size_t>(rows * cols) * size_of(dtype)));
    return buffers_.back().view(dtype, rows, cols);
  }
  template <class S>
  View words(void* place) {
    static_assert(sizeof(S) % 4 == 0);
    return make_view(place, DType::i32, 1, sizeof(S) / 4, buffers_.back().memory());
  }

  backend::Backend& backend_;
  Types types_;
  std::deque<Buffer> buffers_;
  std::vector<Output> outputs_;
};

}  // namespace tandem::testing
