// A matrix product with an optional bias: y = x w' + bias. x [R, in], y [R, out].
#pragma once

#include <span>
#include <string>

#include "nn/context.h"

namespace tandem::nn {

struct Linear {
  ParameterLayout::Id weight = -1;  // the first of `parts` adjacent matrices [out / parts, in]
  ParameterLayout::Id bias = -1;    // the first of `parts` vectors; -1: no bias
  int parts = 1;
  bool bias_summed = false;  // the next norm computes the bias's gradient (see ResidualStack::sum_bias_of)

  // Adds the parameters NAME.weight and, if `with_bias`, NAME.bias.
  static Linear make(ParameterLayout& layout, const std::string& name, int64_t out, int64_t in, bool with_bias);
  // One product for several named parameters: y has `out` columns for each of them, side by side.
  static Linear make(ParameterLayout& layout, std::span<const std::string> names, int64_t out, int64_t in,
                     bool with_bias);

  backend::Weight weights(const Context& context) const { return context.weight(weight, weight + parts - 1); }
  View biases(const Context& context) const { return bias_in(context, context.weights.compute); }  // may be empty

  // These return the ops, so that the caller can add to them before it runs them.
  backend::op::Linear product(const Context& context, const View& y, const View& x) const;
  backend::op::LinearBackwardInput input_gradient(const Context& context, const View& dx, const View& dy) const;
  // with_bias false: the bias's gradient is computed elsewhere (see bias_gradient).
  backend::WeightGradient weight_gradient(const Context& context, const View& dy, const View& x,
                                          bool with_bias = true) const;

  void forward(const Context& context, const View& y, const View& x) const {
    context.backend.run(product(context, y, x));
  }
  void backward_input(const Context& context, const View& dx, const View& dy, bool accumulate = false) const;
  // side: the side that the rows belong to.
  void backward_weight(const Context& context, const View& dy, const View& x, Side side) const;
  View bias_gradient(const Context& context) const { return bias_in(context, context.gradients); }

 private:
  View bias_in(const Context& context, const View& flat) const;
};

// A product of `x` that is not computed yet.
struct PendingProduct {
  const Linear& linear;
  View x;
};

}  // namespace tandem::nn
