#include "nn/residual_norm.h"

namespace tandem {

ResidualNorm ResidualNorm::make(ParameterLayout& layout, const std::string& name, int64_t width) {
  ResidualNorm norm;
  norm.gamma = layout.add_vector(name + ".gamma", width, Init::one);
  norm.beta = layout.add_vector(name + ".beta", width, Init::zero);
  return norm;
}

ResidualNorm::Saved ResidualNorm::forward(const Context& context, const View& residual, const View& branch,
                                          const Dropout& dropout) const {
  const View scale = context.master(gamma);
  require_shape(residual, residual.rows, scale.cols, "the residual of a layer norm");
  Saved saved{.sum = residual,
              .normed = context.take(residual.rows, residual.cols),
              .statistics = context.take_master(residual.rows, 2),
              .dropout = dropout};
  View sum;
  if (!branch.empty()) {
    require_shape(branch, residual.rows, scale.cols, "the branch of a layer norm");
    saved.sum = sum = context.take(residual.rows, residual.cols);
  }
  context.backend.residual_norm(sum, saved.normed, saved.statistics, residual, branch, scale, context.master(beta),
                                dropout);
  return saved;
}

void ResidualNorm::backward(const Context& context, const Saved& saved, const View& dresidual, const View& dbranch,
                            const View& dnormed, const View& dsum, const View& dbias) const {
  require_shape(dnormed, saved.normed.rows, saved.normed.cols, "the output gradient of a layer norm");
  require_shape(dresidual, saved.normed.rows, saved.normed.cols, "the residual gradient of a layer norm");
  require(dbias.empty() || !dbranch.empty(), "a layer norm without a branch has no bias before it");
  context.backend.residual_norm_backward(
      dresidual, dbranch, {context.gradient(gamma), context.gradient(beta), dbias, context.accumulate}, dnormed, dsum,
      saved.sum, saved.statistics, context.master(gamma), saved.dropout);
}

}  // namespace tandem
