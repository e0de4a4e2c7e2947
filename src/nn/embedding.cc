#include "nn/embedding.h"

#include <algorithm>
#include <cmath>

namespace tandem::nn {

namespace {

float scale_of(int64_t width) { return std::sqrt(static_cast<float>(width)); }

}  // namespace

void Embedding::forward(const Context& context, const View& x, const View& tokens, const View& position,
                        const View& positions, const backend::Dropout& dropout) const {
  const backend::Weight weights = context.weight(table);
  require_shape(x, tokens.cols, weights.cols(), "the output of an embedding");
  require_shape(position, 1, tokens.cols, "the positions of the tokens");
  require_shape(positions, positions.rows, weights.cols(), "the position table");
  require(positions.dtype == context.weights.masters.dtype, "the position table is {} and the master weights are {}",
          name_of(positions.dtype), name_of(context.weights.masters.dtype));
  context.backend.run(backend::op::Embed{.x = x,
                                         .tokens = tokens,
                                         .position = position,
                                         .table = weights,
                                         .positions = positions,
                                         .scale = scale_of(weights.cols()),
                                         .dropout = dropout});
}

void Embedding::backward(const Context& context, const View& dtable, const View& dx, const backend::TokenOrder& order,
                         const backend::Dropout& dropout) {
  require_shape(dx, dx.rows, dtable.cols, "the output gradient of an embedding");
  require(!order.rows.empty() && order.rows.cols <= dx.rows, "the token order has {} rows, but the gradient has {}",
          order.rows.cols, dx.rows);
  context.backend.run(backend::op::EmbedBackward{
      .dtable = dtable, .dx = dx, .order = order, .scale = scale_of(dtable.cols), .dropout = dropout});
}

std::vector<double> sinusoid_positions(int64_t length, int64_t width) {
  const int64_t half = width / 2;
  const double step = std::log(10000.0) / static_cast<double>(std::max<int64_t>(1, half - 1));
  std::vector<double> table(static_cast<size_t>(length * width));
  for (int64_t p = 0; p < length; ++p) {
    double* row = table.data() + p * width;
    for (int64_t k = 0; k < half; ++k) {
      const double angle = static_cast<double>(p) * std::exp(-static_cast<double>(k) * step);
      row[k] = std::sin(angle);
      row[half + k] = std::cos(angle);
    }
  }
  return table;
}

}  // namespace tandem::nn
