// Whether a rank may join those that are there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dist/message.h"
#include "dist/team.h"

namespace tandem {

// What a rank says about itself when it joins.
struct Candidate {
  Member member;
  int size = 0;  // how many ranks it was told that there are
};

// Why it may not, or "". `present` has an entry for each of the team's ranks; rank 0 is the measure of the others.
std::string objection_to(const Candidate& candidate, const std::vector<std::optional<Member>>& present);

Message to_message(const Candidate& candidate);
Candidate to_candidate(const Message& message, int rank);

std::string describe(int rank, const std::string& host);  // "rank 3 on host b"

}  // namespace tandem
