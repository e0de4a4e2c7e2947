// What must hold before the first step: the config made whole from the data, and whether a run may go on.
#pragma once

#include <filesystem>

#include "data/prepared.h"
#include "store/checkpoint.h"
#include "train/config.h"

namespace tandem::train {

// Fills in what the data decides (vocabularies) and what follows from other settings (batch seed and length, schedule),
// then fails with everything that is impossible.
void complete_config(TrainConfig& config, const data::Prepared& data);

// Fails with one sentence when the checkpoint's data, model or seed are not those of this run; logs what else changed.
void check_resume(const store::Checkpoint& saved, const TrainConfig& config, const std::string& data_fingerprint,
                  const std::filesystem::path& run);

}  // namespace tandem::train
