// The same op on the GPU and on the CPU twin: the memory that a test takes from either, and the comparison.
#pragma once

#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/matrix.h"

namespace tandem::testing {

// A matrix that may be columns of a wider one. Converts to the views that an op gets.
struct Room {
  View whole, inner;

  operator const View&() const { return inner; }
  operator ConstView() const { return inner; }
  operator backend::Weight() const { return inner; }
};

constexpr float kMarginValue = 7;  // in the columns around an output; they must keep it

// A backend and what a test has put into its memory. Values are the same for every backend, and all are representable
// in bf16. `margin` columns of a wider matrix lie on both sides of a view.
class Lab {
 public:
  explicit Lab(backend::Backend& backend) : backend_(backend) {}

  backend::Backend& backend() { return backend_; }

  template <class T>
  View put(const std::vector<T>& values, int64_t rows, int64_t cols) {
    const View view = take(dtype_of<T>(), rows, cols);
    backend_.upload(view, values.data());
    return view;
  }
  View put(const std::vector<int32_t>& values) { return put(values, 1, static_cast<int64_t>(values.size())); }

  template <class T = bf16>
  Room random(int64_t rows, int64_t cols, uint32_t seed, double scale = 1, int64_t margin = 0) {
    return place(Matrix<T>::random(rows, cols + 2 * margin, seed, scale), margin);
  }

  // NaN, which an op must write over.
  template <class T = bf16>
  Room poisoned(int64_t rows, int64_t cols, int64_t margin = 0) {
    auto matrix = Matrix<T>::filled(rows, cols + 2 * margin, kMarginValue);
    for (int64_t r = 0; r < rows; ++r) {
      std::fill_n(matrix.row(r) + margin, cols, static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
    }
    return place(matrix, margin);
  }
  template <class T = bf16>
  Room put_zeros(int64_t rows, int64_t cols) {
    return place(Matrix<T>(rows, cols), 0);
  }
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

  void append(Results& results, const View& view) {
    switch (view.dtype) {
      case DType::bf16:
        return testing::append(results, values<bf16>(view));
      case DType::f32:
        return testing::append(results, values<float>(view));
      case DType::f64:
        return testing::append(results, values<double>(view));
      case DType::i32:
        return testing::append(results, values<int32_t>(view));
    }
  }
  void append(Results& results, const Room& room) { append(results, room.whole); }

 private:
  View take(DType dtype, int64_t rows, int64_t cols) {
    buffers_.push_back(backend_.allocate(static_cast<size_t>(rows * cols) * size_of(dtype)));
    return buffers_.back().view(dtype, rows, cols);
  }
  template <class T>
  Room place(const Matrix<T>& matrix, int64_t margin) {
    const View whole = put(matrix.data, matrix.rows, matrix.cols);
    return {whole, whole.slice_cols(margin, matrix.cols - 2 * margin)};
  }
  template <class S>
  View words(void* place) {
    static_assert(sizeof(S) % 4 == 0);
    return make_view(place, DType::i32, 1, sizeof(S) / 4, buffers_.back().memory());
  }

  backend::Backend& backend_;
  std::deque<Buffer> buffers_;
};

struct Tolerance {
  double absolute;
  double relative = 1.0 / 128;  // one step of bf16
  bool exact_zeros = false;     // what is 0 on the CPU is 0 on the GPU: masks are the same
};

// Tests that need a GPU; skipped, with the reason, where there is none. It may be an emulated one (tools/emulated_gpu).
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu() == nullptr) {
      GTEST_SKIP() << "not run: " << reason();
    }
  }
  void TearDown() override {
    if (left_out_ > 0) {
      std::cout << "an emulated GPU took " << cases_ - left_out_ << " of " << cases_
                << " cases; TANDEM_SOAK=1 takes all\n";
    }
  }

  // To be asked for each case of a long list: an emulated GPU takes every fifth, which leaves no value of the lists'
  // inner loops out, but some combinations and so some kernels.
  bool leaves_out() {
    static const bool all = !emulated() || std::getenv("TANDEM_SOAK") != nullptr;
    const bool leave = !all && cases_ % 5 != 0;
    ++cases_;
    left_out_ += leave ? 1 : 0;
    return leave;
  }

  static bool emulated() { return gpu()->description().find("Emulated") != std::string::npos; }
  static backend::Backend* gpu() { return both().gpu.get(); }
  static backend::Backend& cpu() { return *both().cpu; }

  // run(Lab&) gives the same on the GPU as on the CPU in bf16, and the same bits when it is done again.
  template <class Run>
  static void expect_twins(const Run& run, const Tolerance& tolerance, const std::string& what) {
    Lab first(*gpu()), second(*gpu()), reference(cpu());
    const Results actual = run(first), again = run(second), expected = run(reference);
    ASSERT_EQ(actual.size(), again.size());
    EXPECT_TRUE(all_close(actual, expected, tolerance.absolute, tolerance.relative)) << what;
    if (!actual.empty()) {
      EXPECT_EQ(std::memcmp(actual.data(), again.data(), actual.size() * sizeof(double)), 0)
          << what << ": other bits the second time";
    }
    for (size_t i = 0; tolerance.exact_zeros && i < actual.size(); ++i) {
      ASSERT_FALSE(expected[i] == 0 && actual[i] != 0) << what << ": " << actual[i] << " instead of 0 at " << i;
    }
  }

 private:
  struct Both {
    std::unique_ptr<backend::Backend> gpu, cpu = backend::make_cpu_backend();
    std::string reason;
  };
  static Both& both() {
    static Both both = [] {
      Both made;
      try {
        made.gpu = backend::make_backend("cuda");
      } catch (const Error& error) {
        made.reason = error.what();
      }
      return made;
    }();
    return both;
  }
  static const std::string& reason() { return both().reason; }

  int cases_ = 0, left_out_ = 0;
};

}  // namespace tandem::testing
