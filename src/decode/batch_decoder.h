// Beam search with the Transformer: encodes a batch of source sentences once, then extends the hypotheses piece by
// piece and keeps the keys and values of every piece.
//
// Hypotheses that share a beginning share its keys and values: each has a list of its own cache rows, so nothing is
// copied when the beam is reordered, and rows of finished sentences are no longer read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "decode/beam_search.h"
#include "model/transformer.h"
#include "tensor/arena.h"

namespace tandem::decode {

// Memory for all decoder layers' keys and values. Grows by doubling and is reused for later batches.
class KeyValueCache {
 public:
  KeyValueCache(backend::Backend& backend, const model::ModelConfig& config, DType dtype);

  // Makes room for `rows` rows; the first `used` rows keep their content.
  void reserve(int64_t rows, int64_t used);
  void clear();  // frees the memory

  std::span<const View> keys() const { return keys_; }      // by layer, each [capacity, D]
  std::span<const View> values() const { return values_; }  // likewise

 private:
  backend::Backend& backend_;
  int64_t layers_, width_;
  DType dtype_;
  int64_t capacity_ = 0;
  Buffer buffer_;
  std::vector<View> keys_, values_;
};

// Not thread-safe: one call at a time. The constructor's arguments must outlive this object.
class BatchDecoder {
 public:
  BatchDecoder(backend::Backend& backend, model::Transformer& model, const nn::Weights& weights);

  // Longest source, in pieces without the end mark.
  int64_t longest_source() const { return model_.config().max_length - 1; }

  int64_t usual_sentences() const { return backend_.traits().decode_sentences; }

  // Translations of each source (ids without bos and eos, at most longest_source() of them), best first. A sentence's
  // result does not depend on the others. If memory does not suffice (OutOfMemory), all of it is freed.
  std::vector<std::vector<Hypothesis>> translate(std::span<const std::vector<int32_t>> sources,
                                                 const SearchOptions& config);

 private:
  backend::Backend& backend_;
  model::Transformer& model_;
  nn::Weights weights_;
  Arena arena_;
  KeyValueCache cache_;
};

}  // namespace tandem::decode
