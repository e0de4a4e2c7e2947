// Which engine carries the gradients between ranks.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "dist/process_group.h"
#include "train/config.h"

namespace tandem::train {

// Works where the backend's memory is. Null where the process group's own communicator does.
std::unique_ptr<dist::Communicator> make_gradient_communicator(dist::ProcessGroup& group, backend::Backend& backend,
                                                               const DistConfig& config);

}  // namespace tandem::train
