// What makes several ranks train one model: their gradients are added up while the backward pass goes on, and the
// update that follows is the same on all of them, bit for bit.
//
// With f64 on the wire, sums over the parts of a step (data/batcher.h) are made in f64, which does not round them, and
// rounded to f32 once: so the update is the same, bit for bit, for any number of ranks that take whole parts, and for
// one, which does its sums here as well.
//
// With a sharded optimizer every rank keeps the moments of its own shard of each bucket, updates that part of the
// masters, and gets the rest from the others. Sums, norm and update are made of the same pieces in the same order
// either way, so the weights are the same bits.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "dist/reducer.h"
#include "model/transformer.h"
#include "optim/adam.h"
#include "train/config.h"
#include "train/model_state.h"

namespace tandem {

struct TeamUpdateOptions {
  DType wire = DType::f32;                  // of gradients between ranks: f32, bf16 or f64
  bool shard_optimizer = false;             //
  int64_t bucket_bytes = int64_t{4} << 20;  // of f32 gradients
};

class TeamUpdate {
 public:
  // Elements that buffers shared by `ranks` are padded to a multiple of: whole vectors for every rank.
  static int64_t unit(int ranks) { return int64_t{16} * ranks; }

  // weights must be padded to unit(communicator.size()). communicator works where the gradients lie. All must outlive
  // this.
  TeamUpdate(Backend& backend, const Transformer& model, ModelState& weights, Communicator& communicator,
             const TeamUpdateOptions& options);

  int64_t moments() const { return moments_; }  // elements of either moment that this rank keeps
  bool alone() const { return communicator_.size() == 1; }

  // ---- the ops of a step, in this order. rows: how many different tokens the whole step has on each side.
  void begin(int64_t source_rows, int64_t target_rows);
  Gradients gradients(bool last);  // for a round; `last`: ranks add up as its backward pass goes on
  void no_part();                  // instead of the last round, where this rank has none
  void join(const View& totals);   // the sums are there, those of `totals` (f64) as well
  // source_ids, target_ids: i32 [1, rows], the tokens that the rows are for.
  void update(Adam& adam, const View& source_ids, const View& target_ids, const StepState* state, UpdateState* update);
  void share();  // with a sharded optimizer: the new weights of all ranks

  // ---- with a sharded optimizer, called by all ranks: whole buffers from what the ranks keep
  bool sharded() const { return options_.shard_optimizer; }
  int64_t padded() const { return reducer_.plan().padded; }
  void complete_average();  // all of the moving average on every rank
  // In host memory: a whole moment [padded] from the ranks' own ones [moments()], over a communicator for host memory,
  // and this rank's own part of a whole one.
  void gather_moment(float* whole, const float* own, Communicator& host) const;
  void own_moment(float* own, const float* whole) const;

  // Bytes that one step sends and receives.
  Traffic planned_traffic(int64_t source_rows, int64_t target_rows) const;

  // What a backward pass tells: a range of the flat gradients is complete, or the rows of a side.
  struct Call {
    Bucket range;
    std::optional<Side> rows;
  };

 private:
  struct Piece {
    int64_t begin, count;  // in the flat buffers
    int64_t first;         // in this rank's moments
  };
  struct Rows {  // gradients of the looked-up tokens, [count, D]
    Buffer values, sums;
    int64_t count = 0;
  };
  static size_t index_of(Side side) { return side == Side::source ? 0 : 1; }
  void reserve(int64_t source_rows, int64_t target_rows);
  bool wide() const { return options_.wire == DType::f64; }
  View values() const;  // this rank's gradients, G [1, padded]
  View row_values(Side side) const;
  View row_sums(Side side) const;
  void add_rows(Side side) { reducer_.add(row_values(side), row_sums(side)); }
  View sum_squares();
  void gather(const View& flat);

  Backend& backend_;
  const Transformer& model_;
  ModelState& weights_;
  Communicator& communicator_;
  TeamUpdateOptions options_;
  std::vector<Call> calls_;  // of one backward pass
  Buffer wide_values_;       // f64 [padded], with f64 on the wire
  Reducer reducer_;
  std::vector<Piece> own_;  // of every bucket
  int64_t moments_ = 0;
  Buffer sums_;  // f64 [ranks, buckets]: squares of each shard of each bucket
  std::array<Rows, 2> rows_;
};

// What gradients travel as: what the config asks for or, where it leaves that open, f64 for f32 on CPUs, else f32.
DType wire_type(const DistConfig& config, const Backend& backend, DType compute);

// Nothing where the communicator has one rank alone, unless with f64 on the wire.
std::optional<TeamUpdate> make_team_update(Backend& backend, const Transformer& model, ModelState& weights,
                                           Communicator& communicator, const DistConfig& config);

}  // namespace tandem
