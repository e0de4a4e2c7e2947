// Cuts a step into micro-batches that fit the memory, before any is allocated: a pass that computes nothing measures
// how much a pass needs.
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

// The arguments of a pass that computes nothing.
struct PlannedPass {
  const model::Transformer& model;
  const ModelState& weights;
  const model::Batch& batch;
  backend::LossTotals* totals;
  Arena& arena;
};

// Calls `pass` with a batch of this layout. Returns the bytes of arena that it needs.
size_t plan_pass(const backend::Backend& backend, const model::ModelConfig& model, DType compute,
                 const BatchLayout& layout, const std::function<void(const PlannedPass&)>& pass);

// Bytes that the activations of one micro-batch of this capacity take in training.
size_t planned_arena_bytes(const backend::Backend& backend, const model::ModelConfig& model, DType compute,
                           const BatchLayout& layout);

struct MemoryPlan {
  data::BatchConfig batch;           // with the limits of a micro-batch
  std::vector<BatchLayout> layouts;  // ascending; empty if the backend works on true sizes
  size_t arena_bytes = 0;            // activations of the largest layout
  std::string description;           // one line
};

// Weights and optimizer state are allocated already; the rest must fit the free memory. For micro_batch "fit": the
// fewest micro-batches that fit, but micro-batches of the size `before` if those fit too, since this keeps the run's
// bits. A number that does not fit fails with both figures.
//
// All ranks of `host` call this, each with its own `before`. All get the same size of micro-batches, the smallest that
// any of them has room for, so that it can be saved in a checkpoint and a rank that joins with more memory computes the
// same bits. ranks: number of ranks that share a step.
MemoryPlan plan_memory(const backend::Backend& backend, DType compute, const data::Corpus& corpus,
                       const TrainConfig& config, int ranks, const data::MicroBatchCapacity& before,
                       dist::Communicator& host);

}  // namespace tandem::train
