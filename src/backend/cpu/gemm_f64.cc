#include "backend/cpu/gemm.h"

namespace tandem::backend {

// Simple, since only tests use it.
void multiply(const Target<double>& c, const Factor<double>& a, const Factor<double>& b, int64_t m, int64_t n,
              int64_t k) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = c.add ? c.data[i * c.stride + j] : 0.0;
      for (int64_t l = 0; l < k; ++l) {
        sum += (a.transposed ? a.data[l * a.stride + i] : a.data[i * a.stride + l]) *
               (b.transposed ? b.data[j * b.stride + l] : b.data[l * b.stride + j]);
      }
      c.data[i * c.stride + j] = sum;
    }
  }
}

}  // namespace tandem::backend
