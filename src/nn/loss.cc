#include "nn/loss.h"

#include <algorithm>

namespace tandem {

namespace {

// Calls body(logits, first row) for each chunk; the logits' memory is given back after each.
template <class Body>
void for_each_chunk(const OutputLoss& loss, const Context& context, const View& hidden, const View& labels,
                    const Body& body) {
  const View w = context.compute(loss.matrix);
  require_shape(hidden, hidden.rows, w.cols, "the input of the output projection");
  require_shape(labels, 1, hidden.rows, "the labels");
  const int64_t chunk = loss.chunk_rows > 0 ? loss.chunk_rows : context.backend.loss_rows();
  for (int64_t first = 0; first < hidden.rows; first += chunk) {
    const Scratch scratch(context.arena);
    const int64_t rows = std::min(chunk, hidden.rows - first);
    const View logits = context.take(rows, w.rows);
    context.backend.linear(logits, hidden.slice_rows(first, rows), w, {});
    body(logits, first);
  }
}

}  // namespace

void OutputLoss::evaluate(const Context& context, LossTotals* totals, const View& hidden, const View& labels,
                          float smoothing) const {
  for_each_chunk(*this, context, hidden, labels, [&](const View& logits, int64_t first) {
    context.backend.cross_entropy(totals, logits, labels.slice_cols(first, logits.rows), smoothing, nullptr);
  });
}

void OutputLoss::train(const Context& context, LossTotals* totals, const View& dhidden, const View& hidden,
                       const View& labels, float smoothing) const {
  require(context.state != nullptr, "training needs the step's state");
  require_shape(dhidden, hidden.rows, hidden.cols, "the gradient of the output projection's input");
  const View w = context.compute(matrix);
  const View dw = context.gradient(matrix);
  if (hidden.rows == 0 && !context.accumulate) {
    context.backend.fill_zero(dw);
  }
  for_each_chunk(*this, context, hidden, labels, [&](const View& logits, int64_t first) {
    context.backend.cross_entropy(totals, logits, labels.slice_cols(first, logits.rows), smoothing, context.state);
    context.backend.linear_backward_input(dhidden.slice_rows(first, logits.rows), logits, w, {}, false);
    context.backend.linear_backward_weight(dw, {}, logits, hidden.slice_rows(first, logits.rows),
                                           context.accumulate || first > 0);
  });
}

View OutputLoss::logits(const Context& context, const View& hidden) const {
  const View w = context.compute(matrix);
  require_shape(hidden, hidden.rows, w.cols, "the input of the output projection");
  const View logits = context.take(hidden.rows, w.rows);
  context.backend.linear(logits, hidden, w, {});
  return logits;
}

}  // namespace tandem
