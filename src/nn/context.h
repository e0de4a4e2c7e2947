// All that a layer needs for one pass over one micro-batch: where to compute, where to keep results, and the weights.
//
// Letters in nn and model: S source rows (tokens), T target rows, R rows of either, D width, H heads, F feed-forward,
// V vocabulary, L layers. C is the compute type, M the master type, G that of gradients (see backend/backend.h).
//
// A layer is a small value: the ids of its parameters and its sizes. `forward` writes its output and returns what
// `backward` needs; those views lie in the arena and live until it is reset. `backward` adds to the gradients of
// parameters, or writes them (see Context::accumulate), and releases its temporary memory.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include "backend/backend.h"
#include "tensor/arena.h"
#include "tensor/parameters.h"

namespace tandem::nn {

// The model's weights, all flat with the model's layout. In f32 and f64 `compute` is the same memory as `masters`.
struct Weights {
  View masters;  // M [1, flat]
  View compute;  // C [1, flat]: what matrix products and embeddings read
};

// Progress of a backward pass, which runs from the last parameter to the first. Meanwhile the backend may defer sums
// over rows; those of a gradient are done before it is declared complete.
class BackwardProgress {
 public:
  using Listener = std::function<void(int64_t begin, int64_t end)>;  // elements of the flat gradients; may be empty

  BackwardProgress(backend::Backend& backend, const ParameterLayout& layout, const Listener& listener)
      : backend_(backend), layout_(layout), listener_(listener), end_(layout.flat_size()) {
    backend_.hold_sums(true);
  }
  // The gradients of this parameter and of all after it are complete.
  void complete_from(ParameterLayout::Id first) {
    if (listener_) {
      const int64_t begin = layout_[first].offset;
      backend_.hold_sums(false);
      listener_(begin, std::exchange(end_, begin));
      backend_.hold_sums(true);
    }
  }
  void finish() { backend_.hold_sums(false); }

 private:
  backend::Backend& backend_;
  const ParameterLayout& layout_;
  const Listener& listener_;
  int64_t end_;
};

struct Context {
  backend::Backend& backend;
  Arena& arena;
  const ParameterLayout& layout;
  Weights weights;
  View gradients = {};                        // G [1, flat]; empty if there is no backward pass
  bool accumulate = true;                     // false: the gradients' previous contents are overwritten, not added to
  const backend::StepState* state = nullptr;  // lies in the backend's memory; needed in training
  bool training = false;                      // dropout is on and what the backward pass needs is kept
  backend::RowParts source_parts = {};        // parts of the batch's rows
  backend::RowParts target_parts = {};
  BackwardProgress* progress = nullptr;  // may be null

  void complete_from(ParameterLayout::Id first) const {
    if (progress != nullptr) {
      progress->complete_from(first);
    }
  }

  View take(int64_t rows, int64_t cols) const { return arena.take(weights.compute.dtype, rows, cols); }
  View take_master(int64_t rows, int64_t cols) const { return arena.take(weights.masters.dtype, rows, cols); }

  // The adjacent matrices `first` to `last` as one tall matrix.
  backend::Weight weight(ParameterLayout::Id first, ParameterLayout::Id last) const {
    return layout.in(weights.compute, first, last);
  }
  backend::Weight weight(ParameterLayout::Id id) const { return weight(id, id); }
  View master(ParameterLayout::Id id) const { return layout.in(weights.masters, id); }
  View gradient(ParameterLayout::Id id) const { return layout.in(gradients, id); }

  // The plan for attention between these rows, shared by all layers; empty if the backend needs none.
  View plan_attention(const View& query_starts, int64_t query_rows, const View& key_starts, int64_t key_rows) const {
    const backend::AttentionShape shape{.query_starts = query_starts, .key_starts = key_starts};
    const int64_t size = backend.attention_plan_size(shape, query_rows);
    if (size == 0) {
      return {};
    }
    const View plan = arena.take(DType::i32, 1, size);
    backend.run(backend::op::PlanAttention{.plan = plan,
                                           .query_starts = query_starts,
                                           .key_starts = key_starts,
                                           .query_rows = query_rows,
                                           .key_rows = key_rows});
    return plan;
  }

  backend::RowParts parts(Side side) const { return side == Side::source ? source_parts : target_parts; }

  backend::Dropout dropout(float rate, uint32_t place, Side side) const {
    return training ? backend::Dropout{rate, place, side, state} : backend::Dropout{};
  }
};

// On destruction, releases what was taken from the arena during its lifetime.
class Scratch {
 public:
  explicit Scratch(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~Scratch() { arena_.release(mark_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

inline void require_shape(const ConstView& view, int64_t rows, int64_t cols, std::string_view what) {
  require(!view.empty() && view.rows == rows && view.cols == cols, "{} is {}x{}, but must be {}x{}", what, view.rows,
          view.cols, rows, cols);
}

}  // namespace tandem::nn
