// An ordered queue of a device's work, as a handle that only code for that device looks into.
#pragma once

namespace tandem::inline tensor {

struct DeviceStream {
  void* handle = nullptr;  // cudaStream_t; null on a CPU, which finishes each call before it returns
  int device = 0;
};

}  // namespace tandem::inline tensor
