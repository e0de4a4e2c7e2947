// Adds up the ranks' gradients while the backward pass goes on.
//
//   reducer.begin();
//   ... backward pass: reducer.complete(begin, end) for each range of the plan, reducer.add(rows) ...
//   reducer.finish();   // the sums are there
//
// All ranks make the same calls. The gradients may lie on a device: then the communicator works in the order of the
// device's own work, and nothing here waits on the host.
#pragma once

#include <functional>
#include <vector>

#include "dist/buckets.h"
#include "dist/communicator.h"

namespace tandem {

struct ReducerOptions {
  // f32; bf16: half the bytes, sums are made in f32 and rounded to bf16; f64: the gradients of this rank are f64, and
  // the ranks' sums are rounded to f32 once.
  DType wire = DType::f32;
  bool scatter = false;  // each rank gets the sums of its own shard of every bucket only
  // Elements of what add() will be given, by call, where no memory may be taken later.
  std::vector<int64_t> extra = {};
};

class Reducer {
 public:
  using Allocate = std::function<Buffer(size_t bytes)>;                   // where the gradients lie
  using Convert = std::function<void(const View& to, const View& from)>;  // between f32, bf16 and f64, there

  // values, sums: this rank's gradients and those of all, [1, plan.padded]. f32 and the same memory, or, with f64 on
  // the wire, f64 and f32. Everything given must outlive the reducer.
  Reducer(Communicator& communicator, BucketPlan plan, const View& values, const View& sums,
          const ReducerOptions& options, const Allocate& allocate, Convert convert);

  void begin();
  // The next range of the plan is complete on this rank: the buckets that it completes start.
  void complete(int64_t begin, int64_t end);
  // Something else to add up over all ranks: contiguous, in the types of values and sums.
  void add(const View& values, const View& sums);
  void finish();

  const BucketPlan& plan() const { return plan_; }
  // Bytes that one step sends and receives by plan, `extra` elements given to add() counted.
  Traffic planned_traffic(int64_t extra) const;

 private:
  struct Message {
    View sums;
    View sent;     // where their sums arrive: the values, their bf16 copy, or `sums` itself
    bool scatter;  // only this rank's shard
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
  std::vector<Buffer> extra_;  // and of what add() was given, in the order of the calls
  std::vector<Message> messages_;
  size_t calls_ = 0;
  size_t extras_ = 0;
};

}  // namespace tandem
