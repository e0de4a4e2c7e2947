// The encoder stack: self-attention and feed-forward, layer by layer. Sublayer 2l is layer l's attention, 2l + 1 its
// feed-forward.
#pragma once

#include <vector>

#include "model/batch.h"
#include "model/config.h"
#include "nn/feed_forward.h"
#include "nn/residual_stack.h"
#include "nn/self_attention.h"

namespace tandem::model {

class Encoder {
 public:
  Encoder(ParameterLayout& layout, const ModelConfig& config);

  struct Saved {
    std::vector<nn::SelfAttention::Saved> attention;
    std::vector<nn::FeedForward::Saved> feed_forward;
    nn::ResidualStack::Saved stack;

    const View& output() const { return stack.output(); }  // C [S, D]
  };
  // x C [S, D]: the embedded source.
  Saved forward(const nn::Context& context, const View& x, const PackedSide& source) const;
  // Overwrites doutput; returns the gradient of x.
  View backward(const nn::Context& context, const Saved& saved, const View& doutput) const;

 private:
  const ModelConfig config_;
  nn::ResidualStack stack_;
  std::vector<nn::SelfAttention> attention_;
  std::vector<nn::FeedForward> feed_forward_;
};

}  // namespace tandem::model
