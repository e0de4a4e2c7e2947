#include "nn/feed_forward.h"

namespace tandem {

FeedForward FeedForward::make(ParameterLayout& layout, const std::string& name, int64_t width, int64_t hidden,
                              Activation activation) {
  FeedForward layer;
  layer.in = Linear::make(layout, name + ".in", hidden, width, true);
  layer.out = Linear::make(layout, name + ".out", width, hidden, true);
  layer.hidden = hidden;
  layer.activation = activation;
  return layer;
}

FeedForward::Saved FeedForward::forward(const Context& context, const View& input, const Dropout& dropout) const {
  Saved saved;
  saved.input = input;
  saved.dropout = dropout;
  if (activation != Activation::relu && activation != Activation::none) {
    saved.pre = context.take(input.rows, hidden);
  }
  if (activation == Activation::relu && context.training) {
    saved.gate = context.arena.take(DType::i32, input.rows, (hidden + 31) / 32);
  }
  saved.hidden = context.take(input.rows, hidden);
  in.forward(context, saved.hidden, input,
             {.bias = {}, .activation = activation, .pre = saved.pre, .dropout = dropout, .gate = saved.gate});
  return saved;
}

void FeedForward::backward(const Context& context, const Saved& saved, const View& dinput, const View& dbranch,
                           bool accumulate) const {
  const Scratch scratch(context.arena);
  const View dhidden = context.take(dbranch.rows, hidden);
  out.backward_input(context, dhidden, dbranch,
                     {.activation = activation,
                      .saved = saved.pre.empty() ? saved.hidden : saved.pre,
                      .dropout = saved.dropout,
                      .gate = saved.gate,
                      .column_sums = in.bias_gradient(context),
                      .accumulate_sums = context.accumulate});
  in.backward_input(context, dinput, dhidden, {}, accumulate);  // first, while dhidden may still be in the cache
  const WeightGradient gradients[] = {in.weight_gradient(context, dhidden, saved.input, false),
                                      out.weight_gradient(context, dbranch, saved.hidden)};
  context.backend.linear_backward_weights(gradients, context.parts(saved.dropout.side), context.accumulate);
}

}  // namespace tandem
