// Turns the precision that a user asks for into the type that matrix products compute in.
#pragma once

#include "backend/backend.h"
#include "tandem/precision.h"

namespace tandem::backend {

// Automatic: bf16 if the backend has it in hardware, else f32. Fails for a type that the backend does not have.
DType compute_type(Precision precision, const Backend& backend);

}  // namespace tandem::backend
