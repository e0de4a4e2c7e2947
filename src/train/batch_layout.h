// A micro-batch as one block of memory, in which the host brings it to the backend.
//
// The block begins with a StepInput. It may have room for more than the micro-batch, so that one recording of a step's
// ops serves many: tokens past the true count are pads at position 0 that belong to no sentence and have no label;
// sentences past the true count are empty.
#pragma once

#include <cstddef>
#include <span>

#include "data/batcher.h"
#include "model/batch.h"
#include "model/config.h"

namespace tandem::train {

// What a step's ops read besides sentences.
struct StepInput {
  backend::StepState state;
  double pause = 0;  // not 0: this rank wants a pause after this step, to save or to stop
};

// The distinct tokens of a whole step on each side (TrainStep::source_ids, target_ids), i32 [1, n] in the backend's
// memory, -1 past the true count; empty if one rank trains alone.
struct StepIds {
  View source, target;
};

class BatchLayout {
 public:
  // Room for exactly this micro-batch of the step, or for one pad if it has no sentence.
  static BatchLayout exactly_for(const data::HostBatch& batch, const data::TrainStep& step);

  // All of the capacity's numbers must be set; no sentence may be longer than `longest`. With `group` there is room for
  // the step's ids, too.
  BatchLayout(const data::MicroBatchCapacity& capacity, int64_t longest, const model::ModelConfig& model,
              bool group = false);

  size_t bytes() const { return bytes_; }
  const data::MicroBatchCapacity& capacity() const { return capacity_; }
  bool holds(const data::HostBatch& batch) const;

  void write(std::span<std::byte> block, const data::HostBatch& batch, const data::TrainStep& step,
             const StepInput& input) const;

  // The views of a block that lies in the backend's memory; of the parts of the batch's rows if it has any.
  model::Batch batch(void* block, Memory memory, const data::HostBatch& host = {}) const;
  View step_ids(void* block, Memory memory, Side side, int64_t count) const;  // the first `count`

 private:
  struct SidePlaces {  // where each array begins, in bytes, and how many tokens and different ids there can be
    size_t tokens, position, starts, rows, ids, run_starts;
    int64_t capacity, runs, longest;
  };
  explicit BatchLayout(const data::MicroBatchCapacity& capacity);
  SidePlaces place_side(int64_t tokens, int64_t runs, int64_t longest);
  void place_step_ids(int64_t source, int64_t target);
  size_t place(int64_t count);
  void write_side(std::span<std::byte> block, const SidePlaces& places, const data::HostSide& side) const;
  model::PackedSide side(void* block, Memory memory, const SidePlaces& places, backend::RowParts parts) const;

  data::MicroBatchCapacity capacity_;
  size_t bytes_ = 0;
  SidePlaces source_{}, target_{};
  size_t labels_ = 0;
  int64_t source_ids_ = 0, target_ids_ = 0;  // how many a step can have
  size_t source_ids_place_ = 0, target_ids_place_ = 0;
};

}  // namespace tandem::train
