// Reads the metrics of one rank, line by line, into series of bounded length.
#pragma once

#include <cstddef>
#include <filesystem>

#include "observe/run_reader.h"

namespace tandem {

// A series of train or probe points that reaches `most_points` (a power of two) is merged to half of them.
RankMetrics read_rank_up_to(const std::filesystem::path& path, int rank, size_t most_points);

}  // namespace tandem
