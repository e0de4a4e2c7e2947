#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <cstring>

#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"

namespace tandem::backend {

namespace {

// dnnl_sgemm's kernels add some rows at the end in another order: with AVX-512 all rows if there are fewer than 16,
// with AVX2 those past a multiple of 6. Such rows are computed in a padded block of their own.
struct RowRule {
  bool avx512 = onednn_uses_avx512();
  int64_t step = avx512 ? 16 : 24;

  int64_t special(int64_t rows) const { return avx512 && rows >= step ? 0 : rows % step; }
};

void sgemm(const Target<float>& c, const Factor<float>& a, const Factor<float>& b, int64_t m, int64_t n, int64_t k) {
  const OneThread one_thread;
  const dnnl_status_t status = dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0F, a.data,
                                          a.stride, b.data, b.stride, c.add ? 1.0F : 0.0F, c.data, c.stride);
  require(status == dnnl_success, "oneDNN could not multiply [{}, {}] by [{}, {}]: status {}", m, k, k, n,
          static_cast<int>(status));
}

// The same for m <= rows, padded with rows of zeros.
void sgemm_filled_up(const Target<float>& c, const Factor<float>& a, const Factor<float>& b, int64_t m, int64_t n,
                     int64_t k, int64_t rows) {
  float* padded_a = scratch<float, struct FilledUpA>(rows * k);
  float* padded_c = scratch<float, struct FilledUpC>(rows * n);
  std::fill_n(padded_a, rows * k, 0.0F);
  std::fill_n(padded_c, rows * n, 0.0F);
  for (int64_t row = 0; row < m; ++row) {
    std::copy_n(a.data + row * a.stride, k, padded_a + row * k);
    if (c.add) {
      std::copy_n(c.data + row * c.stride, n, padded_c + row * n);
    }
  }
  sgemm({padded_c, n, c.add}, {padded_a, k}, b, rows, n, k);
  for (int64_t row = 0; row < m; ++row) {
    std::copy_n(padded_c + row * n, n, c.data + row * c.stride);
  }
}

}  // namespace

bool onednn_uses_avx512() {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

OneThread::OneThread() : kept_(omp_get_max_threads()) { omp_set_num_threads(1); }
OneThread::~OneThread() { omp_set_num_threads(kept_); }

void multiply(const Target<float>& c, const Factor<float>& a, const Factor<float>& b, int64_t m, int64_t n, int64_t k) {
  static const RowRule rule;
  const int64_t special = a.transposed ? 0 : rule.special(m);
  const int64_t plain = m - special;
  if (plain > 0) {
    sgemm(c, a, b, plain, n, k);
  }
  if (special > 0) {
    sgemm_filled_up({c.data + plain * c.stride, c.stride, c.add}, {a.data + plain * a.stride, a.stride}, b, special, n,
                    k, rule.step);
  }
}

}  // namespace tandem::backend
