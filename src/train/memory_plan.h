// How a step is cut into micro-batches so that it fits the memory, decided before any is taken.
#pragma once

#include <string>
#include <vector>

#include "data/corpus.h"
#include "dist/communicator.h"
#include "train/batch_layout.h"
#include "train/config.h"

namespace tandem::train {

struct MemoryPlan {
  data::BatchConfig batch;           // with the limits of a micro-batch
  std::vector<BatchLayout> layouts;  // ascending; empty where the backend works on true counts
  size_t arena_bytes = 0;            // what the largest layout's activations take
  std::string description;           // one sentence
};

// Weights and optimizer state are there already; the rest must fit what is free. micro_batch "fit": the fewest
// micro-batches that do, or, where they fit as well, micro-batches of the size that the run had `before`, which keeps
// its bits; a number that does not fit fails with both figures.
MemoryPlan plan_memory(const backend::Backend& backend, DType compute, const data::Corpus& corpus,
                       const TrainConfig& config, int ranks = 1, const data::MicroBatchCapacity& before = {});

// The same by all ranks of `host`, of which each may want another `before`: their micro-batches get one size, the
// smallest that any of them has room for. So a checkpoint knows it, and a rank that comes to a step with more memory
// computes the same bits. ranks: that share a step.
MemoryPlan plan_memory_together(const backend::Backend& backend, DType compute, const data::Corpus& corpus,
                                const TrainConfig& config, int ranks, const data::MicroBatchCapacity& before,
                                dist::Communicator& host);

}  // namespace tandem::train
