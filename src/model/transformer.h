// The Transformer: encoder and decoder stacks, loss, forward and backward, and the steps of decoding.
//
// Letters: S source rows (tokens), T target rows, D width, H heads, F feed-forward, V vocabulary, L layers.
// Thread-safety: const after construction; one call works on one arena.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/batch.h"
#include "model/config.h"
#include "tensor/arena.h"
#include "tensor/parameters.h"

namespace tandem {

// The model's numbers, all flat with the model's layout. In f32 and f64 `compute` is the same memory as `masters`.
struct Weights {
  View masters;  // M [1, flat]
  View compute;  // C [1, flat]: what matrix products and embeddings read
};


class Transformer {
 public:
  // The backend must outlive the model. Uploads the position table.
  Transformer(Backend& backend, const ModelConfig& config);
  ~Transformer();

  const ModelConfig& config() const { return config_; }
  const ParameterLayout& parameters() const { return layout_; }

  // Forward and backward over one micro-batch with dropout: adds to gradients (M [1, flat]) and to *totals.
  void train(const Weights& weights, const View& gradients, const Batch& batch, float smoothing, LossTotals* totals,
             Arena& arena);

  // Forward only, without dropout: adds to *totals.
  void evaluate(const Weights& weights, const Batch& batch, float smoothing, LossTotals* totals, Arena& arena);

  // Logits C [T, V] of a batch, without dropout (tests, scoring).
  View logits(const Weights& weights, const Batch& batch, Arena& arena);

  // ---- decoding
  // Keys and values of every decoder layer's attention to the source: C [S, L * 2D], layer l's keys in the columns
  // from l * 2D, its values in the columns from l * 2D + D.
  View encode(const Weights& weights, const PackedSide& source, Arena& arena);

  // One position for each of R hypotheses; returns logits C [R, V]. The layers' new keys and values are written to
  // the rows [write_row, write_row + R) of the caches before they are read.
  struct DecodeStep {
    View tokens;              // i32 [1, R]: the last piece of each hypothesis
    View position;            // i32 [1, R]
    std::span<const View> keys;    // per layer, C [cached, D]
    std::span<const View> values;  // per layer, C [cached, D]
    int64_t write_row = 0;
    View self_index;     // i32 [R, longest]: each hypothesis's cache rows, this step's included
    View self_length;    // i32 [1, R]
    View memory;         // encode()'s result
    View memory_first;   // i32 [1, R]: first row of the hypothesis's sentence in memory
    View memory_length;  // i32 [1, R]
  };
  View decode(const Weights& weights, const DecodeStep& step, Arena& arena);
};

}  // namespace tandem
