#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd.h"

namespace tandem::backend {

namespace {

constexpr int64_t kChunk = 1 << 16;

template <class A>
Vec<double> load_double(const A* from) {
  typedef A Four __attribute__((vector_size(4 * sizeof(A))));
  Four four;
  std::memcpy(&four, from, sizeof four);
  return __builtin_convertvector(four, Vec<double>);
}

template <class A>
double squares_of(const A* x, int64_t n) {
  Vec<double> sums[4] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int j = 0; j < 4; ++j) {
      const Vec<double> value = load_double(x + i + 4 * j);
      sums[j] += value * value;
    }
  }
  double total = sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < n; ++i) {
    total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return total;
}

}  // namespace

void op::SumOfSquares::run(CpuBackend& cpu) const {
  const int64_t n = x.size();
  double* partial = scratch<double, struct NormChunks>(n / kChunk + 1);
  dispatch_master(x.dtype, [&]<class A>() {
    for_chunks(cpu.threads(), n, kChunk, [&](int64_t begin, int64_t end) {
      partial[begin / kChunk] = squares_of(x.host<A>() + begin, end - begin);
    });
  });
  double total = 0;
  for (int64_t chunk = 0; chunk * kChunk < n; ++chunk) {
    total += partial[chunk];
  }
  *sum.host<double>() = total;
}

void op::PrepareUpdate::run(CpuBackend& /*cpu*/) const {
  double total = 0;
  for (int64_t i = 0; i < sums.size(); ++i) {
    total += sums.host<double>()[i];
  }
  const auto max_norm = static_cast<double>(settings.max_norm);
  update->norm = std::sqrt(total);
  update->finite = std::isfinite(total) ? 1 : 0;
  update->updates += update->finite;
  const bool clip = max_norm > 0 && update->norm > max_norm && update->finite != 0;
  update->clip_factor = clip ? static_cast<float>(max_norm / update->norm) : 1.0F;
  const double t = update->updates;
  update->bias_correction1 = static_cast<float>(1 - std::pow(static_cast<double>(settings.adam.beta1), t));
  update->bias_correction2 = static_cast<float>(1 - std::pow(static_cast<double>(settings.adam.beta2), t));
  update->average_decay = std::min(settings.average_decay, static_cast<float>((1 + t) / (10 + t)));
}

}  // namespace tandem::backend
