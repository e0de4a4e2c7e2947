// How a step is cut into micro-batches so that it fits the memory, decided before any is taken: what a pass needs is
// found out by one that computes nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "dist/communicator.h"
#include "train/batch_work.h"
#include "train/config.h"
#include "train/model_state.h"

namespace tandem::train {

// What a pass is made with that computes nothing.
struct PlannedPass {
  const model::Transformer& model;
  const ModelState& weights;
  const model::Batch& batch;
  backend::LossTotals* totals;
  Arena& arena;
};

// Calls `pass` for one batch of this layout. Returns the bytes of the largest arena that it needs.
size_t plan_pass(const backend::Backend& backend, const model::ModelConfig& model, DType compute,
                 const BatchLayout& layout, const std::function<void(const PlannedPass&)>& pass);

// Bytes that the activations of one micro-batch of this capacity take in training.
size_t planned_arena_bytes(const backend::Backend& backend, const model::ModelConfig& model, DType compute,
                           const BatchLayout& layout);

struct MemoryPlan {
  data::BatchConfig batch;           // with the limits of a micro-batch
  std::vector<BatchLayout> layouts;  // ascending; empty where the backend works on true counts
  size_t arena_bytes = 0;            // what the largest layout's activations take
  std::string description;           // one sentence
};

// Weights and optimizer state are there already; the rest must fit what is free. micro_batch "fit": the fewest
// micro-batches that do, or, if they fit as well, micro-batches of the size that the run had `before`, which keeps its
// bits; a number that does not fit fails with both figures.
//
// All ranks of `host` call this, of which each may want another `before`. Their micro-batches get one size, the
// smallest that any of them has room for, so that a checkpoint knows it, and a rank that comes to a step with more
// memory computes the same bits. ranks: that share a step.
MemoryPlan plan_memory(const backend::Backend& backend, DType compute, const data::Corpus& corpus,
                       const TrainConfig& config, int ranks, const data::MicroBatchCapacity& before,
                       dist::Communicator& host);

}  // namespace tandem::train
