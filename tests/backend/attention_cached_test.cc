#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::ints;
using testing::Matrix;

constexpr int64_t kCached = 300;

template <class T>
struct Cached {
  int heads;
  Matrix<T> q, keys, values, out;
  Matrix<int32_t> index;
  std::vector<int32_t> length;

  // Row r sees between 1 and 70 cached rows.
  Cached(int64_t rows, int h, int64_t width)
      : heads(h),
        q(Matrix<T>::random(rows, h * width, 1, 2)),
        keys(Matrix<T>::random(kCached, h * width, 2)),
        values(Matrix<T>::random(kCached, h * width, 3)),
        out(rows, h * width),
        index(rows, 70),
        length(static_cast<size_t>(rows)) {
    PhiloxStream random(8, 8);
    for (int64_t r = 0; r < rows; ++r) {
      length[static_cast<size_t>(r)] = static_cast<int32_t>(1 + r * 13 % 70);
      for (int64_t i = 0; i < 70; ++i) {
        index.row(r)[i] = static_cast<int32_t>(random.below(kCached));
      }
    }
  }

  void run(Backend& backend) {
    const CachedKeys cache{keys.view(), values.view(), ints(length), {}, index.view()};
    backend.run(op::AttentionCached{.out = out.view(), .q = q.view(), .cache = cache, .heads = heads});
  }
};

TEST(AttentionCached, ARowDoesNotDependOnTheOthers) {
  const auto backend = make_cpu_backend(3);
  Cached<float> all(33, 4, 32);
  all.run(*backend);
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

}  // namespace
}  // namespace tandem::backend
