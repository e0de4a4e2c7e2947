// Brings micro-batches to the backend, each as one block of memory, and gives it the work over them.
//
// This is where devices that replay work differ from others. One that does gets blocks of a few fixed capacities, and
// the work over each is recorded once and run again and again. Any other gets blocks of the true size, and the work is
// done when give() returns.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <vector>

#include "backend/queue.h"
#include "train/batch_layout.h"

namespace tandem::train {

// How many distinct tokens a step's ids have room for on each side; 0 if there are no ids.
struct IdCounts {
  int64_t source = 0, target = 0;
};

class BatchWork {
 public:
  struct Given {  // in the backend's memory
    model::Batch batch;
    StepIds ids;
    StepInput* input;
  };
  using Body = std::function<void(const Given&)>;

  // layouts: in rising order; for a device that replays. The backend must outlive this.
  BatchWork(backend::Backend& backend, const model::ModelConfig& model, std::vector<BatchLayout> layouts);

  bool replays() const { return !layouts_.empty(); }

  // The body gives ops only. One that differs from another in its ops has another `kind`. If not `recorded`, the ops
  // are given one by one, which gives the same bits.
  void give(const data::HostBatch& batch, const data::TrainStep& step, const StepInput& input, int kind, bool recorded,
            const Body& body);

  int64_t rows_of(const data::HostBatch& batch) const;  // of both sides, pads counted
  IdCounts ids_of(const data::TrainStep& step) const;   // pads counted

 private:
  struct Recordable {
    bool warm = false;  // was run once
    std::unique_ptr<backend::Recording> recording;
  };
  size_t smallest_layout(const data::HostBatch& batch) const;
  void run(Recordable& work, bool recorded, const std::function<void()>& body);

  backend::Backend& backend_;
  IdCounts vocabularies_;
  std::vector<BatchLayout> layouts_;
  std::unique_ptr<backend::Feed> feed_;
  size_t feed_bytes_ = 0;
  Memory memory_;
  std::map<std::array<int64_t, 4>, Recordable> recordings_;  // by layout, numbers of ids, and kind
};

}  // namespace tandem::train
