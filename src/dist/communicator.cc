#include "dist/communicator.h"

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace tandem::dist {

void require_communicable(const View& buffer) {
  require(buffer.memory == Memory::host, "ranks exchange host memory, but this buffer is on a device: copy it first");
  require(buffer.contiguous(), "ranks exchange contiguous buffers, but this one has {} columns at a stride of {}",
          buffer.cols, buffer.stride);
}

void require_communicable(const View& sums, const View& values) {
  require_communicable(sums);
  require_communicable(values);
  require(sums.dtype == DType::f32 && values.dtype == DType::f64 && sums.size() == values.size(),
          "sums of {} {} cannot hold {} {} values: sums are rounded from f64 to f32", sums.size(), name_of(sums.dtype),
          values.size(), name_of(values.dtype));
}

double largest(Communicator& ranks, double value) {
  std::vector<double> all(static_cast<size_t>(ranks.size()));
  all[static_cast<size_t>(ranks.rank())] = value;
  ranks.all_reduce(host_view(all.data(), 1, ranks.size()));
  return *std::max_element(all.begin(), all.end());
}

Handle Communicator::start_rounded_all_reduce(const View& /*sums*/, const View& /*values*/) {
  fail("this engine cannot add f64 gradients: use dist.wire = \"f32\" or \"bf16\"");
}

}  // namespace tandem::dist
