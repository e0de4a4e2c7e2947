// Checks whether a rank may join the ranks that are already there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dist/message.h"
#include "dist/process_group.h"

namespace tandem::dist {

// A rank's description of itself when it joins.
struct JoiningRank {
  RankInfo member;
  int size = 0;  // the number of ranks that it was given
};

// Why the candidate may not join, or "". `present` has an entry for each rank; all are compared with rank 0.
std::string reason_to_refuse(const JoiningRank& candidate, const std::vector<std::optional<RankInfo>>& present);

Message to_message(const JoiningRank& candidate);
JoiningRank to_candidate(const Message& message, int rank);

std::string describe(int rank, const std::string& host);  // "rank 3 on host b"

}  // namespace tandem::dist
