// state.json: what resume needs besides the tensors.
#pragma once

#include <string>

#include "store/checkpoint.h"

namespace tandem::store {

std::string to_json(const CheckpointState& state);

// `name` stands for the file in the error message.
CheckpointState parse_state(const std::string& text, const std::string& name);

}  // namespace tandem::store
