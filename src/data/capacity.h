// How much room one round of a step gets, where a step is worked through at a fixed shape.
#pragma once

#include <vector>

#include "data/batcher.h"

namespace tandem {

// Rooms for steps of `config`, ascending; a round takes the smallest that holds it, and the last one limits a round.
// With a token budget there is one, in which the side that is shorter on average has room for its usual share of the
// longer one's tokens and three standard deviations more; with a sentence budget, whose steps vary in size, eight.
// ranks: that share a step, which is cut where sentences end and by both sides together. tokens: of a round on the
// longer side, at most; 0 = as many as a rank has of a step.
std::vector<RoundCapacity> round_capacities(const Corpus& corpus, const BatchConfig& config, int64_t tokens,
                                            int ranks = 1);

}  // namespace tandem
