// Checks whether a rank may join the ranks that are already there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dist/message.h"
#include "dist/team.h"

namespace tandem {

// A rank's description of itself when it joins.
struct Candidate {
  Member member;
  int size = 0;  // the number of ranks that it was given
};

// Why the candidate may not join, or "". `present` has an entry for each rank; all are compared with rank 0.
std::string objection_to(const Candidate& candidate, const std::vector<std::optional<Member>>& present);

Message to_message(const Candidate& candidate);
Candidate to_candidate(const Message& message, int rank);

std::string describe(int rank, const std::string& host);  // "rank 3 on host b"

}  // namespace tandem
