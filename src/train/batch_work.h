// Sends micro-batches to the backend, each as one block of memory, and gives it the work over them.
//
// Only this class asks whether the device replays work. If it does, blocks have a few fixed capacities, and the work
// over each is recorded once and then replayed. Otherwise blocks have the true size, and the work is done when give()
// returns.
//
// A block begins with a StepInput. It may have room for more than the micro-batch: tokens past the true count are pads
// at position 0 that belong to no sentence and have no label; sentences past the true count are empty.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "data/batcher.h"
#include "model/batch.h"
#include "model/config.h"

namespace tandem::train {

// A step's inputs for its ops, besides sentences.
struct StepInput {
  backend::StepState state;
  double pause = 0;  // not 0: this rank wants to pause after this step, to save or to stop
};

// The distinct tokens of a whole step on each side (TrainStep::source_ids, target_ids), i32 [1, n] in the backend's
// memory, -1 past the true count; empty if one rank trains alone.
struct StepIds {
  View source, target;
};

// How many distinct tokens a step's ids have room for on each side; 0 if it has no ids.
struct IdCounts {
  int64_t source = 0, target = 0;
};

// Where each part of a micro-batch lies in its block.
class BatchLayout {
 public:
  // Room for exactly this micro-batch of the step, or for one pad if it has no sentence.
  static BatchLayout exactly_for(const data::HostBatch& batch, const data::TrainStep& step);

  // All of the capacity's numbers must be set; no sentence may be longer than `longest`. With `group` there is also
  // room for the step's ids.
  BatchLayout(const data::MicroBatchCapacity& capacity, int64_t longest, const model::ModelConfig& model,
              bool group = false);

  size_t bytes() const { return bytes_; }
  const data::MicroBatchCapacity& capacity() const { return capacity_; }
  bool holds(const data::HostBatch& batch) const;

  void write(std::span<std::byte> block, const data::HostBatch& batch, const data::TrainStep& step,
             const StepInput& input) const;

  // Views of a block in the backend's memory. `host` gives the parts of the batch's rows, if it has any.
  model::Batch batch(void* block, Memory memory, const data::HostBatch& host = {}) const;
  StepIds step_ids(void* block, Memory memory, const IdCounts& counts) const;  // the first `counts` ids

 private:
  struct Numbers {  // i32, from this byte on
    size_t begin = 0;
    int64_t count = 0;
  };
  struct SideNumbers {
    Numbers tokens, position, starts, rows, ids, run_starts;
    int64_t longest = 0;
  };
  explicit BatchLayout(const data::MicroBatchCapacity& capacity);
  Numbers place(int64_t count);
  SideNumbers place_side(int64_t tokens, int64_t runs, int64_t longest);

  data::MicroBatchCapacity capacity_;
  size_t bytes_ = 0;
  SideNumbers source_, target_;
  Numbers labels_, source_ids_, target_ids_;
};

bool has_fixed_capacities(const backend::Backend& backend);

// Number of ids to allocate memory for before the first step; 0 if memory may be allocated in any step.
IdCounts ids_in_advance(const backend::Backend& backend, const model::ModelConfig& model);

class BatchWork {
 public:
  struct Given {  // in the backend's memory
    model::Batch batch;
    StepIds ids;
    StepInput* input;
  };
  using Body = std::function<void(const Given&)>;

  // layouts: ascending; used only if the device replays. The backend must outlive this object.
  BatchWork(backend::Backend& backend, const model::ModelConfig& model, std::vector<BatchLayout> layouts);

  bool replays() const { return !layouts_.empty(); }

  // The body only gives ops to the backend. Bodies that give different ops need a different `kind`. If not `recorded`,
  // the ops are given one by one, with the same bits.
  void give(const data::HostBatch& batch, const data::TrainStep& step, const StepInput& input, int kind, bool recorded,
            const Body& body);

  int64_t rows_of(const data::HostBatch& batch) const;  // both sides, including pads
  IdCounts ids_of(const data::TrainStep& step) const;   // including pads

 private:
  struct Recordable {
    bool warm = false;  // was given once
    std::unique_ptr<backend::Recording> recording;
  };
  size_t smallest_layout(const data::HostBatch& batch) const;

  backend::Backend& backend_;
  IdCounts vocabularies_;
  std::vector<BatchLayout> layouts_;
  std::unique_ptr<backend::Feed> feed_;
  size_t feed_bytes_ = 0;
  Memory memory_;
  std::map<std::array<int64_t, 4>, Recordable> recordings_;  // key: layout, numbers of ids, kind
};

}  // namespace tandem::train
