#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dispatch.h"
#include "backend/cpu/simd.h"

namespace tandem::backend {

void op::AddRows::run(CpuBackend& cpu) const {
  const int32_t* id = ids.host<int32_t>();
  dispatch_master(table.dtype, [&]<class A>() {
    cpu.threads().parallel_for(ids.cols, [&](int64_t row) {
      if (id[row] < 0) {
        return;
      }
      A* to = table.host<A>() + id[row] * table.stride;
      const A* from = rows.host<A>() + row * rows.stride;
      for_vectors<A>(table.cols,
                     [&](int64_t i, auto part) { store(to + i, load(to + i, part) + load(from + i, part), part); });
    });
  });
}

}  // namespace tandem::backend
