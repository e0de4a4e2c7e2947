// Which engine carries the gradients between ranks.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "dist/process_group.h"
#include "train/config.h"

namespace tandem {

// Works where the backend's memory is. Null where the process group's own communicator does.
std::unique_ptr<Communicator> make_gradient_communicator(ProcessGroup& group, Backend& backend,
                                                         const DistConfig& config);

}  // namespace tandem
