// The specification of the ops as a backend over host memory: each op in double, as its formula reads (<op>.h). What an
// op reads and writes has the types of its views, as on any device.
#pragma once

#include "backend/backend.h"

namespace tandem::reference {

backend::Backend& reference_backend();

}  // namespace tandem::reference
