// The decoder stack: causal self-attention, attention to the source, feed-forward, layer by layer. Sublayers 3l,
// 3l + 1 and 3l + 2 are layer l's.
#pragma once

#include <vector>

#include "model/batch.h"
#include "model/config.h"
#include "model/decode_step.h"
#include "nn/cross_attention.h"
#include "nn/feed_forward.h"
#include "nn/residual_stack.h"
#include "nn/self_attention.h"

namespace tandem::model {

class Decoder {
 public:
  Decoder(ParameterLayout& layout, const ModelConfig& config);

  // Keys and values of every layer's attention to the source, in one product. output: the encoder's, C [S, D].
  // C [S, L * 2D]: layer l's keys in the columns from l * 2D, its values in the columns from l * 2D + D.
  View memory(const nn::Context& context, const View& output) const;
  // Writes doutput C [S, D].
  void memory_backward(const nn::Context& context, const View& doutput, const View& dmemory, const View& output) const;

  struct Saved {
    std::vector<nn::SelfAttention::Saved> self;
    std::vector<nn::CrossAttention::Saved> cross;
    std::vector<nn::FeedForward::Saved> feed_forward;
    nn::ResidualStack::Saved stack;

    const View& output() const { return stack.output(); }  // C [T, D]
  };
  // x C [T, D]: the embedded target.
  Saved forward(const nn::Context& context, const View& x, const View& memory, const PackedSide& target,
                const PackedSide& source) const;
  // Overwrites doutput, writes dmemory; returns the gradient of x.
  View backward(const nn::Context& context, const Saved& saved, const View& doutput, const View& dmemory) const;

  // One position of each hypothesis: x C [R, D] to the output C [R, D]. Writes the step's rows of the caches.
  View step(const nn::Context& context, const View& x, const DecodeStep& step) const;

 private:
  View keys_of(const View& memory, size_t layer) const;
  View values_of(const View& memory, size_t layer) const;
  backend::AttentionShape self_shape(const nn::Context& context, int layer, const PackedSide& target,
                                     const View& plan) const;
  backend::AttentionShape cross_shape(const nn::Context& context, int layer, const PackedSide& target,
                                      const PackedSide& source, const View& plan) const;
  int places_index(int layer) const { return config_.encoder_layers + layer; }
  nn::PendingProduct self_step(const nn::Context& context, size_t layer, const View& input,
                               const DecodeStep& step) const;
  nn::PendingProduct cross_step(const nn::Context& context, size_t layer, const View& input,
                                const DecodeStep& step) const;

  const ModelConfig config_;
  nn::Linear memory_;
  nn::ResidualStack stack_;
  std::vector<nn::SelfAttention> self_;
  std::vector<nn::CrossAttention> cross_;
  std::vector<nn::FeedForward> feed_forward_;
};

}  // namespace tandem::model
