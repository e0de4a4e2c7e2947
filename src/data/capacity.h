// The capacities of micro-batches on a device that works at fixed shapes.
#pragma once

#include <vector>

#include "data/batcher.h"

namespace tandem::data {

// Capacities for steps of `config`, ascending; a micro-batch takes the smallest that holds it, and the last one limits
// its size. With a token budget there is one, in which the side that is shorter on average has room for its usual share
// of the longer one's tokens and three standard deviations more; with a sentence budget, whose steps vary in size,
// there are eight. ranks: how many ranks share a step, which is cut between sentences and by both sides together.
// tokens: the most tokens of a micro-batch on the longer side; 0 = as many as a rank has of a step.
std::vector<MicroBatchCapacity> micro_batch_capacities(const Corpus& corpus, const BatchConfig& config, int64_t tokens,
                                                       int ranks = 1);

}  // namespace tandem::data
