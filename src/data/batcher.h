// Cuts the endless stream of shuffled sentence pairs into optimizer steps, and a step into packed micro-batches.
//
// An epoch is a permutation seeded by (seed, epoch). A step takes the next pairs while both sides stay within the
// global token budget (or up to a number of pairs), across an epoch's end if need be. A step's pairs do not depend on
// the number of workers or micro-batches: each worker gets consecutive pairs and cuts them into micro-batches that fit
// their capacity. A cursor into the stream is all that a resumed run needs.
//
// A step may also be cut into parts, which do not depend on workers or micro-batches either. Workers take whole parts,
// and so do micro-batches of at least 256 tokens a side; so sums over parts add the same numbers for any number of
// workers and micro-batches.
#pragma once

#include <cstdint>
#include <vector>

#include "data/corpus.h"

namespace tandem::data {

// The most that one micro-batch of a step may hold; 0 = no limit.
struct MicroBatchCapacity {
  int64_t source = 0;  // tokens, including end marks
  int64_t target = 0;
  int64_t pairs = 0;
};

struct BatchConfig {
  int64_t tokens = 25000;    // global budget of a step for each side, including the bos or eos of every sentence
  int64_t sentences = 0;     // > 0: this many pairs a step instead of the token budget
  int64_t max_length = 256;  // pairs with a longer side (including the end mark) are left out and counted
  uint64_t seed = 1;
  MicroBatchCapacity capacity = {};  // default: the whole step is one micro-batch
  int64_t part_tokens = 0;  // > 0: a step is cut into at least 12 parts of about this many tokens of both sides
};

// Position in the stream: the next pair is permutation(epoch)[index].
struct Cursor {
  int64_t epoch = 0;
  int64_t index = 0;
};

// One side of a packed micro-batch in host memory: its sentences' tokens one after the other, without padding.
struct HostSide {
  std::vector<int32_t> tokens;                               // source: w1..wn eos; target: bos w1..wn
  std::vector<int32_t> position;                             // each token's place in its sentence, from 0
  std::vector<int32_t> starts = {0};                         // [sentences + 1]: rows where the sentences begin
  int64_t longest = 0;                                       // tokens of the longest sentence
  std::vector<int32_t> order_rows, order_ids, order_starts;  // the rows sorted by token id, for embedding gradients
  std::vector<int32_t> parts;                                // rows where the parts begin and end; may be empty
  uint32_t first = 0;  // index of the first token in the step's global batch on this side
};

struct HostBatch {
  HostSide source, target;
  std::vector<int32_t> labels;  // w1..wn eos
  std::vector<int64_t> pairs;   // corpus numbers, in order
};

struct TrainStep {
  std::vector<HostBatch> micro_batches;  // this worker's micro-batches
  // With several workers or with parts, the distinct token ids of each side in the whole step, ascending; the
  // micro-batches' order_ids are then indices into these, so that the all-reduce sends one row per distinct id.
  std::vector<int32_t> source_ids, target_ids;
  // Totals of the whole step, over all workers.
  int64_t pairs = 0;
  int64_t source_tokens = 0;
  int64_t target_tokens = 0;
  Cursor after;            // the position at which the next step begins
  double epochs_done = 0;  // epochs done after this step, with a fraction
};

class Batcher {
 public:
  // The corpus must outlive the batcher. Fails if no pair is short enough, or if one exceeds the token budget.
  Batcher(const Corpus& corpus, const BatchConfig& config, int worker = 0, int workers = 1);

  void seek(Cursor cursor);
  TrainStep next();

  int64_t usable_pairs() const { return static_cast<int64_t>(usable_.size()); }
  int64_t too_long() const { return too_long_; }

 private:
  // A pair of the step and its numbers of tokens, including end marks; or the sum of several.
  struct Planned {
    int32_t pair;
    int32_t source;
    int32_t target;

    Planned operator+(const Planned& more) const { return {-1, source + more.source, target + more.target}; }
  };

  std::vector<Planned> plan();  // returns the next step's pairs and moves the cursor
  void permute(int64_t epoch);
  Planned measured(int32_t pair) const;
  int64_t parts_of(int64_t tokens) const;  // the number of parts of a step
  // Indices into the step's pairs: where each of this worker's parts begins, and where the last one ends.
  std::vector<size_t> cuts_of(const std::vector<Planned>& planned) const;
  bool fits(const HostBatch& micro_batch, const Planned& more, int64_t pairs = 1) const;
  void add_micro_batches(TrainStep& step, const std::vector<Planned>& planned, const std::vector<size_t>& cuts) const;
  void add(HostBatch& micro_batch, int32_t pair) const;
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

// Capacities of micro-batches on a device that works at fixed shapes, for steps of `config`, ascending; a micro-batch
// takes the smallest that holds it, and the last one limits its size. With a token budget there is one: the side that
// is shorter on average has room for its usual share of the longer side's tokens plus three standard deviations. With a
// sentence budget, steps vary in size and there are eight. ranks: number of ranks that share a step, which is cut
// between sentences, by the tokens of both sides. tokens: most tokens of a micro-batch on the longer side; 0 = a rank's
// whole share of a step.
std::vector<MicroBatchCapacity> micro_batch_capacities(const Corpus& corpus, const BatchConfig& config, int64_t tokens,
                                                       int ranks = 1);

}  // namespace tandem::data
