#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dispatch.h"
#include "backend/cpu/rows.h"

namespace tandem {

namespace {

constexpr int64_t kChunk = 1 << 16;
constexpr int64_t kSums = 16;  // sums that run side by side

template <class A>
double sum_of_squares(const A* x, int64_t n) {
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
#pragma omp simd
    for (int64_t j = 0; j < kSums; ++j) {
      const double value = static_cast<double>(x[i + j]);
      sums[j] += value * value;
    }
  }
  for (; i < n; ++i) {
    const double value = static_cast<double>(x[i]);
    sums[i % kSums] += value * value;
  }
  double total = 0;
  for (const double sum : sums) {
    total += sum;
  }
  return total;
}

}  // namespace

void CpuBackend::gradient_norm(GradientNorm* result, const View& gradients, float max_norm) {
  const int64_t n = gradients.size();
  double* partial = scratch<double, struct NormChunks>(n / kChunk + 1);
  dispatch_master(gradients.dtype, [&]<class A>() {
    for_chunks(threads_, n, kChunk, [&](int64_t begin, int64_t end) {
      partial[begin / kChunk] = sum_of_squares(gradients.host<A>() + begin, end - begin);
    });
  });
  double total = 0;
  for (int64_t chunk = 0; chunk * kChunk < n; ++chunk) {
    total += partial[chunk];
  }
  result->norm = std::sqrt(total);
  result->finite = std::isfinite(total) ? 1 : 0;
  const bool clip = max_norm > 0 && result->norm > static_cast<double>(max_norm);
  result->clip_factor =
      clip && result->finite != 0 ? static_cast<float>(static_cast<double>(max_norm) / result->norm) : 1.0F;
}

}  // namespace tandem
