#include "nn/linear.h"

namespace tandem::nn {

Linear Linear::make(ParameterLayout& layout, const std::string& name, int64_t out, int64_t in, bool with_bias) {
  return make(layout, std::span(&name, 1), out, in, with_bias);
}

Linear Linear::make(ParameterLayout& layout, std::span<const std::string> names, int64_t out, int64_t in,
                    bool with_bias) {
  Linear linear;
  linear.parts = static_cast<int>(names.size());
  linear.weight = static_cast<ParameterLayout::Id>(layout.all().size());
  for (const std::string& name : names) {
    layout.add_matrix(name + ".weight", out, in, Init::glorot);
  }
  if (with_bias) {
    linear.bias = static_cast<ParameterLayout::Id>(layout.all().size());
    for (const std::string& name : names) {
      layout.add_vector(name + ".bias", out, Init::zero);
    }
  }
  return linear;
}

View Linear::bias_in(const Context& context, const View& flat) const {
  if (bias < 0) {
    return {};
  }
  const View rows = context.layout.in(flat, bias, bias + parts - 1);
  return rows.reshape(1, rows.size());
}

backend::op::Linear Linear::product(const Context& context, const View& y, const View& x) const {
  const backend::Weight w = weights(context);
  require_shape(x, x.rows, w.cols(), "the input of a matrix product");
  require_shape(y, x.rows, w.rows(), "the output of a matrix product");
  return {.y = y, .x = x, .w = w, .bias = biases(context)};
}

backend::op::LinearBackwardInput Linear::input_gradient(const Context& context, const View& dx, const View& dy) const {
  const backend::Weight w = weights(context);
  require_shape(dy, dy.rows, w.rows(), "the output gradient of a matrix product");
  require_shape(dx, dy.rows, w.cols(), "the input gradient of a matrix product");
  return {.dx = dx, .dy = dy, .w = w};
}

void Linear::backward_input(const Context& context, const View& dx, const View& dy, bool accumulate) const {
  backend::op::LinearBackwardInput gradient = input_gradient(context, dx, dy);
  gradient.accumulate = accumulate;
  context.backend.run(gradient);
}

backend::WeightGradient Linear::weight_gradient(const Context& context, const View& dy, const View& x,
                                                bool with_bias) const {
  const View dw = context.layout.in(context.gradients, weight, weight + parts - 1);
  require_shape(dy, dy.rows, dw.rows, "the output gradient of a matrix product");
  require_shape(x, dy.rows, dw.cols, "the input of a matrix product");
  return {dw, with_bias && !bias_summed ? bias_gradient(context) : View{}, dy, x};
}

void Linear::backward_weight(const Context& context, const View& dy, const View& x, Side side) const {
  const backend::WeightGradient gradient = weight_gradient(context, dy, x);
  context.backend.run(backend::op::LinearBackwardWeights{
      .gradients = {&gradient, 1}, .parts = context.parts(side), .accumulate = context.accumulate});
}

}  // namespace tandem::nn
