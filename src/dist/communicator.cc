#include "dist/communicator.h"

#include "core/error.h"

namespace tandem {

void require_communicable(const View& buffer) {
  require(buffer.memory == Memory::host, "ranks exchange host memory, this buffer is a device's: copy it first");
  require(buffer.contiguous(), "ranks exchange contiguous buffers, this one has {} columns at a stride of {}",
          buffer.cols, buffer.stride);
}

void require_communicable(const View& sums, const View& values) {
  require_communicable(sums);
  require_communicable(values);
  require(sums.dtype == DType::f32 && values.dtype == DType::f64 && sums.size() == values.size(),
          "sums of {} {} for {} {} values: they are rounded from f64 to f32", sums.size(), name_of(sums.dtype),
          values.size(), name_of(values.dtype));
}

Handle Communicator::start_rounded_all_reduce(const View& /*sums*/, const View& /*values*/) {
  fail("gradients in f64 cannot be added up here: use dist.wire = \"f32\" or \"bf16\"");
}

}  // namespace tandem
