// A micro-batch as one block of memory of a fixed size, filled up to its capacity: what a recorded step reads.
//
// The block begins with the step's StepState. Tokens past the true count are pads at position 0 that belong to no
// sentence and have no label; sentences past the true count are empty.
#pragma once

#include <cstddef>
#include <span>

#include "data/batcher.h"
#include "model/batch.h"
#include "model/config.h"

namespace tandem {

class BatchLayout {
 public:
  // All of the capacity's numbers must be set; no sentence may be longer than `longest`. With `team` there is room for
  // the ids of the whole step's tokens (TrainStep::source_ids, target_ids), too.
  BatchLayout(const RoundCapacity& capacity, int64_t longest, const ModelConfig& model, bool team = false);

  size_t bytes() const { return bytes_; }
  const RoundCapacity& capacity() const { return capacity_; }
  bool holds(const HostBatch& batch) const;

  void write(std::span<std::byte> block, const HostBatch& batch, const StepState& state) const;
  void write_step_ids(std::span<std::byte> block, const TrainStep& step) const;

  // The views of a block that lies in the backend's memory.
  Batch batch(void* block, Memory memory) const;
  View step_ids(void* block, Memory memory, Side side, int64_t count) const;  // -1 past the true count

 private:
  struct SidePlaces {  // where each array begins, in bytes, and how many tokens and different ids there can be
    size_t tokens, position, starts, rows, ids, run_starts;
    int64_t capacity, runs;
  };
  SidePlaces place_side(int64_t tokens, int64_t vocabulary);
  size_t place(int64_t count);
  void write_side(std::span<std::byte> block, const SidePlaces& places, const HostSide& side) const;
  PackedSide side(void* block, Memory memory, const SidePlaces& places) const;

  RoundCapacity capacity_;
  int64_t longest_;
  size_t bytes_;
  SidePlaces source_{}, target_{};
  size_t labels_;
  int64_t source_ids_ = 0, target_ids_ = 0;  // how many the team's step can have
  size_t source_ids_place_ = 0, target_ids_place_ = 0;
};

}  // namespace tandem
