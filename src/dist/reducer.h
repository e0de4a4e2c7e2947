// All-reduces gradients while the backward pass continues.
//
//   reducer.begin();
//   ... backward pass: reducer.complete(begin, end) for each range of the plan, reducer.add(rows) ...
//   reducer.finish();   // the sums are complete
//
// All ranks make the same calls. The gradients may lie on a device: then the communicator works in the order of the
// device's own work, and the host never waits here.
#pragma once

#include <functional>
#include <vector>

#include "dist/buckets.h"
#include "dist/communicator.h"

namespace tandem::dist {

struct ReducerOptions {
  // f32; bf16: half the bytes, sums are made in f32 and rounded to bf16; f64: this rank's gradients are f64, and the
  // sums over the ranks are rounded to f32 once.
  DType wire = DType::f32;
  bool scatter = false;  // each rank gets the sums of its own shard of every bucket only
  // Sizes of the buffers later passed to add(), so that they can be allocated now.
  std::vector<int64_t> extra = {};
};

class Reducer {
 public:
  using Allocate = std::function<Buffer(size_t bytes)>;                   // allocates where the gradients lie
  using Convert = std::function<void(const View& to, const View& from)>;  // converts between f32, bf16 and f64 there

  // values, sums: this rank's gradients and the sums over all ranks, [1, plan.padded]. f32 in the same memory, or, for
  // wire f64, f64 and f32. All arguments must outlive the reducer.
  Reducer(Communicator& communicator, BucketPlan plan, const View& values, const View& sums,
          const ReducerOptions& options, const Allocate& allocate, Convert convert);

  void begin();
  // The next range of the plan is complete on this rank: starts the buckets that it completes.
  void complete(int64_t begin, int64_t end);
  // All-reduces another contiguous buffer, in the types of values and sums.
  void add(const View& values, const View& sums);
  void finish();

  const BucketPlan& plan() const { return plan_; }
  // Bytes that one step sends and receives by plan, including `extra` elements passed to add().
  Traffic planned_traffic(int64_t extra) const;

 private:
  struct Message {
    View sums;
    View sent;     // the buffer in which the sums arrive: the values, their bf16 copy, or `sums` itself
    bool scatter;  // sum only this rank's shard
    Handle handle;
  };
  void start(const View& values, const View& sums, const View& copy, bool scatter);

  Communicator& communicator_;
  BucketPlan plan_;
  View values_, sums_;
  ReducerOptions options_;
  Allocate allocate_;
  Convert convert_;
  Buffer copies_;              // bf16 copies of the gradients
  std::vector<Buffer> extra_;  // bf16 copies of the buffers passed to add(), in the order of the calls
  std::vector<Message> messages_;
  size_t calls_ = 0;
  size_t extras_ = 0;
};

}  // namespace tandem::dist
