#include "nn/cross_attention.h"

namespace tandem::nn {

CrossAttention CrossAttention::make(ParameterLayout& layout, const std::string& name, int64_t width, bool with_bias) {
  CrossAttention layer;
  layer.q = Linear::make(layout, name + ".q", width, width, with_bias);
  layer.out = Linear::make(layout, name + ".out", width, width, with_bias);
  layer.width = width;
  return layer;
}

CrossAttention::Saved CrossAttention::forward(const Context& context, const View& input, const View& k, const View& v,
                                              const backend::AttentionShape& shape) const {
  require(width % shape.heads == 0, "{} heads do not divide the width {}", shape.heads, width);
  require_shape(shape.key_starts, 1, shape.query_starts.cols, "the sentence starts of cross-attention's keys");
  require_shape(k, k.rows, width, "cross-attention's keys");
  require_shape(v, k.rows, width, "cross-attention's values");
  Saved saved{.input = input,
              .q = context.take(input.rows, width),
              .k = k,
              .v = v,
              .mixed = context.take(input.rows, width),
              .log_sums = context.training ? context.take_master(shape.heads, input.rows) : View{},
              .shape = shape};
  q.forward(context, saved.q, input);
  context.backend.run(backend::op::Attention{
      .out = saved.mixed, .log_sums = saved.log_sums, .q = saved.q, .k = k, .v = v, .shape = shape});
  return saved;
}

void CrossAttention::backward(const Context& context, const Saved& saved, const View& dinput, const View& dk,
                              const View& dv, const View& dbranch, bool accumulate) const {
  require_shape(dk, saved.k.rows, width, "the gradient of cross-attention's keys");
  require_shape(dv, saved.v.rows, width, "the gradient of cross-attention's values");
  const Scratch scratch(context.arena);
  const View dmixed = context.take(dbranch.rows, width);
  const View dq = context.take(dbranch.rows, width);
  out.backward_input(context, dmixed, dbranch);
  context.backend.run(backend::op::AttentionBackward{.dq = dq,
                                                     .dk = dk,
                                                     .dv = dv,
                                                     .dout = dmixed,
                                                     .out = saved.mixed,
                                                     .log_sums = saved.log_sums,
                                                     .q = saved.q,
                                                     .k = saved.k,
                                                     .v = saved.v,
                                                     .shape = saved.shape});
  const backend::WeightGradient gradients[] = {out.weight_gradient(context, dbranch, saved.mixed),
                                               q.weight_gradient(context, dq, saved.input)};
  context.backend.run(backend::op::LinearBackwardWeights{
      .gradients = gradients, .parts = context.parts(saved.shape.dropout.side), .accumulate = context.accumulate});
  q.backward_input(context, dinput, dq, accumulate);
}

}  // namespace tandem::nn
