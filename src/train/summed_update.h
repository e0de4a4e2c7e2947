// The gradients of several ranks are added up while the backward pass goes on, and the update that follows is the same
// on all of them, bit for bit.
//
// With f64 on the wire, sums over the parts of a step (data/batcher.h) are made in f64, which does not round them, and
// rounded to f32 once. So the update is the same, bit for bit, for any number of ranks that take whole parts, and for
// one rank, which makes its sums here as well.
//
// With a sharded optimizer every rank keeps the optimizer's state for a part of the model, updates that part of the
// masters, and gets the rest from the others. Sums, norm and update are made of the same pieces in the same order
// either way, so the weights are the same bits.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "dist/reducer.h"
#include "train/gradient_update.h"

namespace tandem::train {

struct SummedUpdateOptions {
  DType wire = DType::f32;  // of gradients between ranks: f32, bf16 or f64
  bool shard_optimizer = false;
  bool whole_parameters = false;            // shards end at the ends of parameters
  int64_t bucket_bytes = int64_t{4} << 20;  // of f32 gradients
};

class SummedUpdate final : public GradientUpdate {
 public:
  SummedUpdate(backend::Backend& backend, const model::Transformer& model, ModelState& weights,
               dist::Communicator& communicator, const SummedUpdateOptions& options);

  int64_t own_parameters() const override { return dist::elements_of(own_); }
  void begin(const StepIds& ids) override;
  model::Gradients gradients(bool last) override;
  void finish(optim::Optimizer& optimizer, const StepIds& ids, StepInput* input, StepResult* result) override;
  dist::Traffic planned_traffic(const IdCounts& ids) const override;
  void complete(const View& flat) override;
  std::vector<dist::ShardPieces> shards(dist::Communicator& host) const override;

 private:
  struct Rows {  // gradients of the looked-up tokens, [count, D]
    Buffer values, sums;
    int64_t count = 0;
  };
  static size_t index_of(Side side) { return side == Side::source ? 0 : 1; }
  bool wide() const { return options_.wire == DType::f64; }
  // Each rank gets the sums of its own shard only.
  bool scatters() const { return options_.shard_optimizer && !options_.whole_parameters; }
  size_t own_number() const {  // of this rank's shard
    return static_cast<size_t>(options_.whole_parameters ? communicator_.rank() : communicator_.shard_number());
  }
  void reserve(const IdCounts& ids);
  View values() const;  // this rank's gradients, G [1, padded]
  View row_values(Side side) const;
  View row_sums(Side side) const;
  void join(StepSums* sums);
  void add_looked_up_rows(const StepIds& ids);
  View sum_squares();

  backend::Backend& backend_;
  const model::Transformer& model_;
  ModelState& weights_;
  dist::Communicator& communicator_;
  SummedUpdateOptions options_;
  Buffer wide_values_;  // f64 [padded], with f64 on the wire
  dist::Reducer reducer_;
  std::vector<dist::ShardPieces> shards_;  // by shard number; empty if the optimizer is not sharded
  dist::ShardPieces own_;
  Buffer squares_;  // f64 [ranks, buckets]: of each shard of each bucket
  std::array<Rows, 2> rows_;
};

}  // namespace tandem::train
