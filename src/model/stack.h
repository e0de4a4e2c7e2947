// The encoder or the decoder: layer by layer self-attention, attention to the source (in a decoder) and feed-forward,
// each a sublayer around the residual stream.
#pragma once

#include <memory>
#include <vector>

#include "model/batch.h"
#include "model/config.h"
#include "model/decode_step.h"
#include "model/places.h"
#include "nn/residual_stack.h"

namespace tandem::model {

// A micro-batch's data that sublayers read in one pass, besides the rows that flow through them.
struct StackInput {
  const PackedSide& rows;  // the sentences of the stack's own rows
  // Only in a decoder:
  const PackedSide* source = nullptr;
  View memory = {};   // SourceMemory's result
  View dmemory = {};  // its gradient, which the backward pass writes
  // Set by the stack: plans that all attentions to the same rows share.
  View self_plan = {}, cross_plan = {};
};

class Sublayer {
 public:
  virtual ~Sublayer() = default;

  virtual nn::Linear& output() = 0;  // the sublayer's last product
  virtual nn::ResidualStack::Branch forward(const nn::Context& context, const View& x,
                                            const StackInput& input) const = 0;
  // Computes one position of each hypothesis and writes its rows of the caches.
  virtual nn::PendingProduct step(const nn::Context& context, const View& x, const DecodeStep& step) const = 0;
};

// The layer that a sublayer belongs to.
struct Layer {
  ModelConfig config;
  Side side;
  int number;  // the layer's index in its stack
  std::string name;
  LayerPlaces places;
};

class Stack {
 public:
  // Side::source makes an encoder (parameters encoder.*), Side::target a decoder (decoder.*).
  Stack(ParameterLayout& layout, const ModelConfig& config, Side side);

  using Saved = nn::ResidualStack::Saved;
  // x C [R, D]: the embedded tokens.
  Saved forward(const nn::Context& context, const View& x, StackInput input) const;
  // Overwrites doutput; returns the gradient of x.
  View backward(const nn::Context& context, const Saved& saved, const View& doutput) const {
    return stack_.backward(context, saved, doutput);
  }
  // Runs a decoder on one position of each hypothesis: x C [R, D] to the output C [R, D].
  View step(const nn::Context& context, const View& x, const DecodeStep& step) const;

 private:
  template <class Kind>
  void add(ParameterLayout& layout, const Layer& layer);

  const ModelConfig config_;
  nn::ResidualStack stack_;
  std::vector<std::unique_ptr<Sublayer>> sublayers_;
};

}  // namespace tandem::model
