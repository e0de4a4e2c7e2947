#include "nn/self_attention.h"

namespace tandem::nn {

SelfAttention SelfAttention::make(ParameterLayout& layout, const std::string& name, int64_t width, bool with_bias) {
  SelfAttention layer;
  layer.qkv = Linear::make(layout, name + ".qkv", 3 * width, width, with_bias);
  layer.out = Linear::make(layout, name + ".out", width, width, with_bias);
  layer.width = width;
  return layer;
}

SelfAttention::Saved SelfAttention::forward(const Context& context, const View& input,
                                            const backend::AttentionShape& shape) const {
  require(width % shape.heads == 0, "{} heads do not divide the width {}", shape.heads, width);
  require_shape(shape.key_starts, 1, shape.query_starts.cols, "the sentence starts of self-attention's keys");
  Saved saved{.input = input,
              .qkv = context.take(input.rows, 3 * width),
              .mixed = context.take(input.rows, width),
              .log_sums = context.training ? context.take_master(shape.heads, input.rows) : View{},
              .shape = shape};
  qkv.forward(context, saved.qkv, input);
  context.backend.run(backend::op::Attention{.out = saved.mixed,
                                             .log_sums = saved.log_sums,
                                             .q = queries(saved.qkv),
                                             .k = keys(saved.qkv),
                                             .v = values(saved.qkv),
                                             .shape = shape});
  return saved;
}

void SelfAttention::backward(const Context& context, const Saved& saved, const View& dinput, const View& dbranch,
                             bool accumulate) const {
  const Scratch scratch(context.arena);
  const View dmixed = context.take(dbranch.rows, width);
  const View dqkv = context.take(dbranch.rows, 3 * width);
  out.backward_input(context, dmixed, dbranch);
  context.backend.run(backend::op::AttentionBackward{.dq = queries(dqkv),
                                                     .dk = keys(dqkv),
                                                     .dv = values(dqkv),
                                                     .dout = dmixed,
                                                     .out = saved.mixed,
                                                     .log_sums = saved.log_sums,
                                                     .q = queries(saved.qkv),
                                                     .k = keys(saved.qkv),
                                                     .v = values(saved.qkv),
                                                     .shape = saved.shape});
  const backend::WeightGradient gradients[] = {out.weight_gradient(context, dbranch, saved.mixed),
                                               qkv.weight_gradient(context, dqkv, saved.input)};
  context.backend.run(backend::op::LinearBackwardWeights{
      .gradients = gradients, .parts = context.parts(saved.shape.dropout.side), .accumulate = context.accumulate});
  qkv.backward_input(context, dinput, dqkv, accumulate);
}

}  // namespace tandem::nn
