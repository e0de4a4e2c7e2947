// The most memory this process has used so far.
#pragma once

#include <cstdint>

namespace tandem::observe {

// Bytes of resident memory at its highest (VmHWM); 0 where the system does not tell.
int64_t peak_memory();

}  // namespace tandem::observe
