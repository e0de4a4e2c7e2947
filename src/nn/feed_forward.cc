#include "nn/feed_forward.h"

namespace tandem::nn {

FeedForward FeedForward::make(ParameterLayout& layout, const std::string& name, int64_t width, int64_t hidden,
                              backend::Activation activation) {
  FeedForward layer;
  layer.in = Linear::make(layout, name + ".in", hidden, width, true);
  layer.out = Linear::make(layout, name + ".out", width, hidden, true);
  layer.hidden = hidden;
  layer.activation = activation;
  return layer;
}

FeedForward::Saved FeedForward::forward(const Context& context, const View& input,
                                        const backend::Dropout& dropout) const {
  Saved saved;
  saved.input = input;
  saved.dropout = dropout;
  if (activation != backend::Activation::relu && activation != backend::Activation::none) {
    saved.pre = context.take(input.rows, hidden);
  }
  if (activation == backend::Activation::relu && context.training) {
    saved.gate = context.arena.take(DType::i32, input.rows, (hidden + 31) / 32);
  }
  saved.hidden = context.take(input.rows, hidden);
  backend::op::Linear product = in.product(context, saved.hidden, input);
  product.pre = saved.pre;
  product.gate = saved.gate;
  product.activation = activation;
  product.dropout = dropout;
  context.backend.run(product);
  return saved;
}

void FeedForward::backward(const Context& context, const Saved& saved, const View& dinput, const View& dbranch,
                           bool accumulate) const {
  const Scratch scratch(context.arena);
  const View dhidden = context.take(dbranch.rows, hidden);
  backend::op::LinearBackwardInput gradient = out.input_gradient(context, dhidden, dbranch);
  gradient.column_sums = in.bias_gradient(context);
  gradient.saved = saved.pre.empty() ? saved.hidden : saved.pre;
  gradient.gate = saved.gate;
  gradient.activation = activation;
  gradient.dropout = saved.dropout;
  gradient.accumulate_sums = context.accumulate;
  context.backend.run(gradient);
  in.backward_input(context, dinput, dhidden, accumulate);  // first, while dhidden may still be in the cache
  const backend::WeightGradient gradients[] = {in.weight_gradient(context, dhidden, saved.input, false),
                                               out.weight_gradient(context, dbranch, saved.hidden)};
  context.backend.run(backend::op::LinearBackwardWeights{
      .gradients = gradients, .parts = context.parts(saved.dropout.side), .accumulate = context.accumulate});
}

}  // namespace tandem::nn
