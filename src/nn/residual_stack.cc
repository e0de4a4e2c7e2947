#include "nn/residual_stack.h"

namespace tandem::nn {

void ResidualStack::add_sublayer(ParameterLayout& layout, const std::string& name, uint32_t place) {
  norms_.push_back(ResidualNorm::make(layout, name, width_));
  places_.push_back(place);
  outputs_.emplace_back();
}

void ResidualStack::sum_bias_of(Linear& output) {
  output.bias_summed = true;
  outputs_.back() = output;
}

void ResidualStack::finish(ParameterLayout& layout, const std::string& name) {
  if (pre_norm_) {
    norms_.push_back(ResidualNorm::make(layout, name, width_));
  }
}

ResidualStack::Saved ResidualStack::forward(const Context& context, const View& x, const Sublayer& sublayer) const {
  require_shape(x, x.rows, width_, "the input of a stack");
  Saved saved;
  saved.norms.reserve(norms_.size());
  saved.sublayers.reserve(places_.size());
  const View room = context.take(x.rows, width_);  // holds one branch after another: no backward pass reads them
  View residual = x;
  View input = x;
  if (pre_norm_) {
    saved.norms.push_back(norms_[0].forward(context, x));
    input = saved.norms[0].normed;
  }
  for (int i = 0; i < sublayers(); ++i) {
    Branch branch = sublayer(i, input);
    const backend::Dropout dropout = context.dropout(rate_, places_[static_cast<size_t>(i)], side_);
    saved.norms.push_back(norms_[saved.norms.size()].forward(context, residual, branch.last, room, dropout));
    saved.sublayers.push_back(std::move(branch.backward));
    input = saved.norms.back().normed;
    residual = pre_norm_ ? saved.norms.back().sum : input;
  }
  return saved;
}

View ResidualStack::backward(const Context& context, const Saved& saved, const View& doutput) const {
  const View dbranch = context.take(doutput.rows, width_);
  // Post-norm: residual and input are the same matrix, whose gradient stays in doutput.
  const View dresidual = pre_norm_ ? context.take(doutput.rows, width_) : doutput;
  View dsum;
  for (int i = sublayers() - 1; i >= 0; --i) {
    const size_t n = static_cast<size_t>(i) + (pre_norm_ ? 1 : 0);
    const View dbias = outputs_[static_cast<size_t>(i)].bias_gradient(context);
    norms_[n].backward(context, saved.norms[n], dresidual, dbranch, doutput, dsum, dbias);
    saved.sublayers[static_cast<size_t>(i)](context, doutput, dbranch, !pre_norm_);
    // In a pre-norm stack norms_[i] is the norm of this sublayer's input; its gradient comes in the next iteration.
    const ResidualNorm& own = norms_[static_cast<size_t>(i)];
    context.complete_from(pre_norm_ ? own.beta + 1 : own.gamma);
    dsum = pre_norm_ ? dresidual : View{};
  }
  if (pre_norm_) {
    norms_[0].backward(context, saved.norms[0], dresidual, {}, doutput, dresidual);
    context.complete_from(norms_[0].gamma);
  }
  return dresidual;
}

}  // namespace tandem::nn
