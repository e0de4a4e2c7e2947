#include "nn/residual_norm.h"

namespace tandem::nn {

ResidualNorm ResidualNorm::make(ParameterLayout& layout, const std::string& name, int64_t width) {
  ResidualNorm norm;
  norm.gamma = layout.add_vector(name + ".gamma", width, Init::one);
  norm.beta = layout.add_vector(name + ".beta", width, Init::zero);
  return norm;
}

ResidualNorm::Saved ResidualNorm::forward(const Context& context, const View& residual) const {
  require_shape(residual, residual.rows, context.master(gamma).cols, "the residual of a layer norm");
  const Saved saved{.sum = residual,
                    .normed = context.take(residual.rows, residual.cols),
                    .statistics = context.take_master(residual.rows, 2),
                    .dropout = {}};
  context.backend.run(backend::op::ResidualNorm{.normed = saved.normed,
                                                .statistics = saved.statistics,
                                                .residual = residual,
                                                .gamma = context.master(gamma),
                                                .beta = context.master(beta)});
  return saved;
}

ResidualNorm::Saved ResidualNorm::forward(const Context& context, const View& residual, const PendingProduct& branch,
                                          const View& room, const backend::Dropout& dropout) const {
  const backend::Weight w = branch.linear.weights(context);
  require_shape(residual, residual.rows, context.master(gamma).cols, "the residual of a layer norm");
  require_shape(branch.x, residual.rows, w.cols(), "the input of a layer norm's branch");
  require_shape(w.values, residual.cols, w.cols(), "the weights of a layer norm's branch");
  const Saved saved{.sum = context.take(residual.rows, residual.cols),
                    .normed = context.take(residual.rows, residual.cols),
                    .statistics = context.take_master(residual.rows, 2),
                    .dropout = dropout};
  context.backend.run(backend::op::LinearResidualNorm{.sum = saved.sum,
                                                      .normed = saved.normed,
                                                      .statistics = saved.statistics,
                                                      .branch = room,
                                                      .x = branch.x,
                                                      .w = w,
                                                      .bias = branch.linear.biases(context),
                                                      .residual = residual,
                                                      .gamma = context.master(gamma),
                                                      .beta = context.master(beta),
                                                      .dropout = dropout});
  return saved;
}

void ResidualNorm::backward(const Context& context, const Saved& saved, const View& dresidual, const View& dbranch,
                            const View& dnormed, const View& dsum, const View& dbias) const {
  require_shape(dnormed, saved.normed.rows, saved.normed.cols, "the output gradient of a layer norm");
  require_shape(dresidual, saved.normed.rows, saved.normed.cols, "the residual gradient of a layer norm");
  require(dbias.empty() || !dbranch.empty(), "a layer norm without a branch has no bias before it");
  context.backend.run(backend::op::ResidualNormBackward{.dresidual = dresidual,
                                                        .dbranch = dbranch,
                                                        .dgamma = context.gradient(gamma),
                                                        .dbeta = context.gradient(beta),
                                                        .dbias = dbias,
                                                        .dnormed = dnormed,
                                                        .dsum = dsum,
                                                        .sum = saved.sum,
                                                        .statistics = saved.statistics,
                                                        .gamma = context.master(gamma),
                                                        .dropout = saved.dropout,
                                                        .accumulate = context.accumulate});
}

}  // namespace tandem::nn
