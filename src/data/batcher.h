// Cuts the endless stream of shuffled sentence pairs into optimizer steps, and a step into packed micro-batches.
//
// An epoch is a permutation seeded by (seed, epoch). A step is the next pairs while both sides stay within the global
// token budget (or up to a number of pairs), across an epoch's end if need be. A step's pairs do not depend on the
// number of workers or rounds: worker w of W gets consecutive ones, cut again into rounds that fit the micro-batch
// capacity. Resume is a cursor.
//
// A step may also be cut into parts that do not depend on workers and rounds either. Workers take whole parts, and so
// do rounds of at least 256 tokens a side; so sums that are made part by part are made of the same numbers by any
// number of workers, in any rounds.
#pragma once

#include <cstdint>
#include <vector>

#include "core/side.h"
#include "data/corpus.h"

namespace tandem {

// What one round of a step may hold; 0 = no limit.
struct RoundCapacity {
  int64_t source = 0;  // tokens, end marks counted
  int64_t target = 0;
  int64_t pairs = 0;
};

struct BatchConfig {
  int64_t tokens = 25000;    // global budget of a step for each side, bos or eos of every sentence counted
  int64_t sentences = 0;     // > 0: this many pairs a step instead of the token budget
  int64_t max_length = 256;  // pairs with a side longer than this (end mark counted) are left out and counted
  uint64_t seed = 1;
  RoundCapacity round = {};  // by default the whole step is one round
  int64_t part_tokens = 0;   // > 0: a step is cut into parts of about this many tokens of both sides, but at least 12
};

// Position in the stream: the next pair is permutation(epoch)[index].
struct Cursor {
  int64_t epoch = 0;
  int64_t index = 0;
};

// One side of a packed micro-batch, in host memory; the meaning is that of model/batch.h's PackedSide.
struct HostSide {
  std::vector<int32_t> tokens;  // source: w1..wn eos; target: bos w1..wn
  std::vector<int32_t> position, starts;
  int64_t longest = 0;
  std::vector<int32_t> order_rows, order_ids, order_starts;
  std::vector<int32_t> parts;  // backend/backend.h's RowParts; empty without parts
  uint32_t first = 0;          // index of the first token in the step's global batch on this side
};

struct HostBatch {
  HostSide source, target;
  std::vector<int32_t> labels;  // w1..wn eos
  std::vector<int64_t> pairs;   // corpus numbers, in order
};

struct TrainStep {
  std::vector<HostBatch> rounds;  // this worker's part
  // With several workers or with parts, the distinct ids of each side's tokens in the whole step, rising; the rounds'
  // order_ids are then places in these, so that what is added up over the workers is one row for each id that occurs.
  std::vector<int32_t> source_ids, target_ids;
  // Of the whole step, over all workers.
  int64_t pairs = 0;
  int64_t source_tokens = 0;
  int64_t target_tokens = 0;
  Cursor after;            // where the next step begins
  double epochs_done = 0;  // after this step, with its fraction
};

class Batcher {
 public:
  // The corpus must outlive the batcher. Fails when no pair is short enough, or one exceeds the token budget.
  Batcher(const Corpus& corpus, const BatchConfig& config, int worker = 0, int workers = 1);

  void seek(Cursor cursor);
  TrainStep next();

  int64_t usable_pairs() const { return static_cast<int64_t>(usable_.size()); }
  int64_t too_long() const { return too_long_; }

 private:
  // A pair of the step and its tokens, end mark counted; or the tokens of several.
  struct Planned {
    int32_t pair;
    int32_t source;
    int32_t target;

    Planned operator+(const Planned& more) const { return {-1, source + more.source, target + more.target}; }
  };

  void check_lengths() const;
  std::vector<Planned> plan();  // the next step's pairs; moves the cursor
  void permute(int64_t epoch);
  Planned at(int64_t index) const;
  int64_t parts_of(int64_t tokens) const;  // of a step
  // Where this worker's parts begin, and the last one's end, in the step's pairs.
  std::vector<size_t> cuts_of(const std::vector<Planned>& planned) const;
  bool fits(const HostBatch& round, const Planned& more, int64_t pairs = 1) const;
  void add_rounds(TrainStep& step, const std::vector<Planned>& planned, const std::vector<size_t>& cuts) const;
  void add(HostBatch& round, int32_t pair) const;
  void number_rows(TrainStep& step, const std::vector<Planned>& planned) const;

  const Corpus& corpus_;
  BatchConfig config_;
  int worker_, workers_;
  std::vector<int32_t> usable_;  // pairs that are short enough, in corpus order
  int64_t too_long_ = 0;
  std::vector<int32_t> permutation_;  // usable_ in the order of permuted_epoch_
  int64_t permuted_epoch_ = -1;
  Cursor cursor_;
};

// Packs given sentences (ids without bos and eos) in the given order; for validation and tests. `pairs` counts from 0.
HostBatch pack(const std::vector<std::vector<int32_t>>& source, const std::vector<std::vector<int32_t>>& target);

}  // namespace tandem
