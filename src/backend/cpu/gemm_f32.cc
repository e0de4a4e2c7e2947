#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <cstring>

#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"

namespace tandem {

namespace {

// With fewer rows dnnl_sgemm takes another path, whose sums have another order; from here on a row's bits are the same
// for every number of rows.
constexpr int64_t kLeastRows = 16;

void sgemm(const Target<float>& c, const Factor<float>& a, const Factor<float>& b, int64_t m, int64_t n, int64_t k) {
  const OneThread one_thread;
  const dnnl_status_t status = dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0F, a.data,
                                          a.stride, b.data, b.stride, c.add ? 1.0F : 0.0F, c.data, c.stride);
  require(status == dnnl_success, "oneDNN could not multiply [{}, {}] by [{}, {}]: status {}", m, k, k, n,
          static_cast<int>(status));
}

// The same with rows of zeros below.
void sgemm_few_rows(const Target<float>& c, const Factor<float>& a, const Factor<float>& b, int64_t m, int64_t n,
                    int64_t k) {
  float* padded_a = scratch<float, struct FewRowsA>(kLeastRows * k);
  float* padded_c = scratch<float, struct FewRowsC>(kLeastRows * n);
  std::fill_n(padded_a, kLeastRows * k, 0.0F);
  std::fill_n(padded_c, kLeastRows * n, 0.0F);
  for (int64_t row = 0; row < m; ++row) {
    std::copy_n(a.data + row * a.stride, k, padded_a + row * k);
    if (c.add) {
      std::copy_n(c.data + row * c.stride, n, padded_c + row * n);
    }
  }
  sgemm({padded_c, n, c.add}, {padded_a, k}, b, kLeastRows, n, k);
  for (int64_t row = 0; row < m; ++row) {
    std::copy_n(padded_c + row * n, n, c.data + row * c.stride);
  }
}

}  // namespace

OneThread::OneThread() : kept_(omp_get_max_threads()) { omp_set_num_threads(1); }
OneThread::~OneThread() { omp_set_num_threads(kept_); }

void multiply(const Target<float>& c, const Factor<float>& a, const Factor<float>& b, int64_t m, int64_t n, int64_t k) {
  m < kLeastRows && !a.transposed ? sgemm_few_rows(c, a, b, m, n, k) : sgemm(c, a, b, m, n, k);
}

}  // namespace tandem
