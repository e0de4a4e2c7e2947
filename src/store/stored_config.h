// What a stored run says its model is: the [model] table of config.toml, as training wrote it.
#pragma once

#include <string>

#include "model/config.h"

namespace tandem::store {

// `toml` is the text of a checkpoint's or model's config.toml. Keys that an older version did not write keep their
// defaults; a key or a value that is not known fails with an error that names it and the file `name`.
model::ModelConfig read_model_config(const std::string& toml, const std::string& name);

}  // namespace tandem::store
