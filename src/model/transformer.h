// The Transformer: encoder and decoder stacks, loss, forward and backward, and the steps of decoding.
//
// Letters: S source rows (tokens), T target rows, D width, H heads, F feed-forward, V vocabulary, L layers.
// Thread-safety: const after construction; one call works on one arena.
#pragma once

#include "model/batch.h"
#include "model/config.h"
#include "model/gradients.h"
#include "model/source_memory.h"
#include "model/stack.h"
#include "nn/embedding.h"
#include "nn/loss.h"
#include "tensor/arena.h"
#include "tensor/parameters.h"

namespace tandem::model {

// How many parameters such a model has. Takes no memory for them.
int64_t parameter_count(const ModelConfig& config);

class Transformer {
 public:
  // The backend must outlive the model. Uploads the position table, in the master type M. Fails with all of the
  // config's problems, or if the backend cannot take such a model.
  Transformer(backend::Backend& backend, const ModelConfig& config, DType master = DType::f32);

  const ModelConfig& config() const { return config_; }
  const ParameterLayout& parameters() const { return layout_; }

  ParameterLayout::Id table(Side side) const {
    return side == Side::source ? source_embedding_.table : target_embedding_.table;
  }

  // Forward and backward over one micro-batch with dropout: adds to *totals and adds to or writes the gradients.
  void train(const nn::Weights& weights, const Gradients& gradients, const Batch& batch, float smoothing,
             backend::LossTotals* totals, Arena& arena) const;

  // Forward only, without dropout: adds to *totals.
  void evaluate(const nn::Weights& weights, const Batch& batch, float smoothing, backend::LossTotals* totals,
                Arena& arena) const;

  // Logits C [T, V] of a batch, without dropout (tests, scoring).
  View logits(const nn::Weights& weights, const Batch& batch, Arena& arena) const;

  // ---- decoding
  // Returns SourceMemory's result, which the decoder reads: C [S, L * 2D].
  View encode(const nn::Weights& weights, const PackedSide& source, Arena& arena) const;

  // One position for each of R hypotheses; returns logits C [R, V]. The layers' new keys and values are written to
  // the rows [write_row, write_row + R) of the caches before they are read.
  View decode(const nn::Weights& weights, const DecodeStep& step, Arena& arena) const;

 private:
  struct Pass {
    Stack::Saved encoder;
    View memory, dmemory;  // dmemory only in training
    Stack::Saved decoder;
  };
  Pass forward(const nn::Context& context, const Batch& batch) const;
  View embed(const nn::Context& context, const nn::Embedding& embedding, const View& tokens, const View& position,
             Side side) const;
  View embed(const nn::Context& context, const PackedSide& packed, Side side) const;
  backend::Dropout embedding_dropout(const nn::Context& context, Side side) const;
  void embed_backward(const nn::Context& context, const Gradients& gradients, const View& dx, const PackedSide& packed,
                      Side side) const;
  nn::Context context_for(const nn::Weights& weights, Arena& arena) const;

  backend::Backend& backend_;
  const ModelConfig config_;
  ParameterLayout layout_;  // the members below add their parameters to it in this order
  nn::Embedding source_embedding_, target_embedding_;
  Stack encoder_;
  SourceMemory memory_;
  Stack decoder_;
  nn::OutputLoss output_;
  Buffer position_memory_;
  View positions_;  // M [max_length, D]
};

}  // namespace tandem::model
