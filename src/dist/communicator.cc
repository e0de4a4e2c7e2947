#include "dist/communicator.h"

#include "core/error.h"

namespace tandem {

void require_communicable(const View& buffer) {
  require(buffer.memory == Memory::host, "ranks exchange host memory, this buffer is a device's: copy it first");
  require(buffer.contiguous(), "ranks exchange contiguous buffers, this one has {} columns at a stride of {}",
          buffer.cols, buffer.stride);
}

}  // namespace tandem
