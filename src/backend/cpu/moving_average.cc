#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd.h"

namespace tandem::backend {

namespace {

constexpr int64_t kChunk = 1 << 14;

}  // namespace

void op::MovingAverage::run(CpuBackend& cpu) const {
  if (update->finite == 0) {
    return;
  }
  dispatch_master(masters.dtype, [&]<class A>() {
    const A rest = static_cast<A>(1 - static_cast<double>(update->average_decay));
    for_chunks(cpu.threads(), masters.size(), kChunk, [&](int64_t begin, int64_t end) {
      A* to = average.host<A>() + begin;
      const A* from = masters.host<A>() + begin;
      for_vectors<A>(end - begin, [&](int64_t i, auto part) {
        const Vec<A> old = load(to + i, part);
        store(to + i, old + (load(from + i, part) - old) * rest, part);
      });
    });
  });
}

}  // namespace tandem::backend
