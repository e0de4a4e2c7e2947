// Files that hold a few numbers or names, and that a run can do without.
#pragma once

#include <filesystem>
#include <string>

#include "core/file.h"

namespace tandem {

// Empty where `path` is no regular file, or one of more than `most` bytes.
inline std::string small_file(const std::filesystem::path& path, size_t most = 1 << 20) {
  std::error_code error;
  const bool readable =
      std::filesystem::is_regular_file(path, error) && std::filesystem::file_size(path, error) <= most;
  return readable && !error ? read_file(path, most) : "";
}

}  // namespace tandem
