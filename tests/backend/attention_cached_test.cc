#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::append;
using testing::ints;
using testing::Matrix;
using testing::Results;

constexpr int64_t kCached = 300;

template <class T>
struct Cached {
  int heads;
  Matrix<T> q, keys, values, out;
  Matrix<int32_t> index;
  std::vector<int32_t> length, first;

  // Row r sees between 1 and 70 cached rows, scattered (index) or one after the other (first).
  Cached(int64_t rows, int h, int64_t width)
      : heads(h),
        q(Matrix<T>::random(rows, h * width, 1, 2)),
        keys(Matrix<T>::random(kCached, h * width, 2)),
        values(Matrix<T>::random(kCached, h * width, 3)),
        out(rows, h * width),
        index(rows, 70),
        length(static_cast<size_t>(rows)),
        first(static_cast<size_t>(rows)) {
    PhiloxStream random(8, 8);
    for (int64_t r = 0; r < rows; ++r) {
      length[static_cast<size_t>(r)] = static_cast<int32_t>(1 + r * 13 % 70);
      first[static_cast<size_t>(r)] = static_cast<int32_t>(random.below(kCached - 70));
      for (int64_t i = 0; i < 70; ++i) {
        index.row(r)[i] = static_cast<int32_t>(random.below(kCached));
      }
    }
  }

  CachedKeys cache(bool indexed) {
    return {keys.view(), values.view(), ints(length), indexed ? View{} : ints(first), indexed ? index.view() : View{}};
  }
  void run(Backend& backend, bool indexed) {
    backend.run(op::AttentionCached{.out = out.view(), .q = q.view(), .cache = cache(indexed), .heads = heads});
  }

  // By the formula, in double.
  Results expected(bool indexed) {
    Results results;
    const int64_t width = q.cols / heads;
    for (int64_t r = 0; r < q.rows; ++r) {
      for (int64_t h = 0; h < heads; ++h) {
        std::vector<double> weights;
        std::vector<int64_t> rows;
        double sum = 0;
        for (int64_t i = 0; i < length[static_cast<size_t>(r)]; ++i) {
          rows.push_back(indexed ? index.row(r)[i] : first[static_cast<size_t>(r)] + i);
          double score = 0;
          for (int64_t c = h * width; c < (h + 1) * width; ++c) {
            score += static_cast<double>(q.row(r)[c]) * static_cast<double>(keys.row(rows.back())[c]);
          }
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(width))));
          sum += weights.back();
        }
        for (int64_t c = h * width; c < (h + 1) * width; ++c) {
          double value = 0;
          for (size_t i = 0; i < rows.size(); ++i) {
            value += weights[i] / sum * static_cast<double>(values.row(rows[i])[c]);
          }
          results.push_back(value);
        }
      }
    }
    return results;
  }
};

template <class T>
void expect_formula(double tolerance) {
  const auto backend = make_cpu_backend(2);
  for (const int64_t width : {32, 64, 20}) {
    for (const int64_t rows : {0, 1, 33}) {
      for (const bool indexed : {false, true}) {
        Cached<T> cached(rows, 4, width);
        cached.run(*backend, indexed);
        Results actual;
        append(actual, cached.out.data);
        EXPECT_TRUE(testing::all_close(actual, cached.expected(indexed), tolerance, tolerance));
      }
    }
  }
}

TEST(AttentionCached, EqualsTheFormula) {
  expect_formula<double>(1e-12);
  expect_formula<float>(1e-5);
  expect_formula<bf16>(1e-2);
}

TEST(AttentionCached, ARowDoesNotDependOnTheOthers) {
  const auto backend = make_cpu_backend(3);
  Cached<float> all(33, 4, 32);
  all.run(*backend, true);
  for (const int64_t r : {0, 5, 32}) {
    Matrix<float> out(1, all.q.cols);
    std::vector<int32_t> length = {all.length[static_cast<size_t>(r)]};
    backend->run(op::AttentionCached{
        .out = out.view(),
        .q = all.q.view().slice_rows(r, 1),
        .cache = {all.keys.view(), all.values.view(), ints(length), {}, all.index.view().slice_rows(r, 1)},
        .heads = 4});
    EXPECT_TRUE(std::equal(out.data.begin(), out.data.end(), all.out.row(r)));
  }
}

TEST(AttentionCached, NoKeysGiveZeros) {
  const auto backend = make_cpu_backend(1);
  Cached<float> cached(2, 2, 32);
  cached.length = {0, 3};
  cached.run(*backend, true);
  EXPECT_TRUE(std::all_of(cached.out.row(0), cached.out.row(1), [](float value) { return value == 0; }));
  EXPECT_NE(cached.out.row(1)[0], 0);
}

TEST(AttentionCached, SameBitsAtAnyThreadCount) {
  testing::expect_same_bits_at_any_thread_count([](Backend& backend) {
    Cached<float> cached(50, 4, 32);
    cached.run(backend, true);
    Results results;
    append(results, cached.out.data);
    return results;
  });
}

}  // namespace
}  // namespace tandem::backend
