// Names and links of a run's checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace tandem::store {

std::filesystem::path checkpoint_directory(const std::filesystem::path& run, int64_t step);

// Makes <run>/<name> a relative symbolic link to a directory below the run, in one step.
void set_link(const std::filesystem::path& run, const std::string& name, const std::filesystem::path& directory);

}  // namespace tandem::store
