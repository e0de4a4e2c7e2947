#include "nn/loss.h"

#include <algorithm>
#include <vector>

namespace tandem::nn {

namespace {

// The end of the chunk of at most `most` rows that begins at `first`: the last end of a part in it, if there is one.
int64_t chunk_end(int64_t first, int64_t most, int64_t rows, backend::RowParts parts) {
  const int64_t limit = std::min(first + most, rows);
  const auto after = std::upper_bound(parts.begin(), parts.end(), limit);
  return after != parts.begin() && *(after - 1) > first ? *(after - 1) : limit;
}

// The parts of the rows [first, end), counted from `first`.
std::vector<int32_t> parts_inside(backend::RowParts parts, int64_t first, int64_t end) {
  std::vector<int32_t> inside;
  if (!parts.empty()) {
    inside.push_back(0);
    for (const int32_t start : parts) {
      if (start > first && start < end) {
        inside.push_back(static_cast<int32_t>(start - first));
      }
    }
    inside.push_back(static_cast<int32_t>(end - first));
  }
  return inside;
}

// Calls body(memory for logits, first row, rows) for each chunk; the memory is released after each.
template <class Body>
void for_each_chunk(const OutputLoss& loss, const Context& context, const View& hidden, const View& labels,
                    const Body& body) {
  const backend::Weight w = context.weight(loss.matrix);
  require_shape(hidden, hidden.rows, w.cols(), "the input of the output projection");
  require_shape(labels, 1, hidden.rows, "the labels");
  const int64_t chunk = loss.chunk_rows > 0 ? loss.chunk_rows : context.backend.traits().loss_rows;
  const int64_t spare = context.backend.traits().spare_logit_rows;
  for (int64_t first = 0, end = 0; first < hidden.rows; first = end) {
    const Scratch scratch(context.arena);
    end = chunk_end(first, chunk, hidden.rows, context.target_parts);
    body(context.take(end - first + spare, w.rows()), first, end - first);
  }
}

}  // namespace

void OutputLoss::evaluate(const Context& context, backend::LossTotals* totals, const View& hidden, const View& labels,
                          float smoothing) const {
  for_each_chunk(*this, context, hidden, labels, [&](const View& memory, int64_t first, int64_t rows) {
    const View logits = memory.slice_rows(0, rows);
    context.backend.run(
        backend::op::Linear{.y = logits, .x = hidden.slice_rows(first, rows), .w = context.weight(matrix)});
    context.backend.run(backend::op::CrossEntropy{
        .totals = totals, .logits = logits, .labels = labels.slice_cols(first, rows), .smoothing = smoothing});
  });
}

void OutputLoss::train(const Context& context, backend::LossTotals* totals, const View& dhidden, const View& hidden,
                       const View& labels, float smoothing) const {
  require(context.state != nullptr, "training needs the step's state");
  require_shape(dhidden, hidden.rows, hidden.cols, "the gradient of the output projection's input");
  const View dw = context.gradient(matrix);
  if (hidden.rows == 0 && !context.accumulate) {
    context.backend.fill_zero(dw);
  }
  for_each_chunk(*this, context, hidden, labels, [&](const View& memory, int64_t first, int64_t rows) {
    const std::vector<int32_t> parts = parts_inside(context.target_parts, first, first + rows);
    context.backend.run(backend::op::ProjectedLoss{.totals = totals,
                                                   .dx = dhidden.slice_rows(first, rows),
                                                   .dw = dw,
                                                   .logits = memory,
                                                   .x = hidden.slice_rows(first, rows),
                                                   .w = context.weight(matrix),
                                                   .labels = labels.slice_cols(first, rows),
                                                   .smoothing = smoothing,
                                                   .state = context.state,
                                                   .parts = parts,
                                                   .accumulate = context.accumulate || first > 0});
  });
}

View OutputLoss::logits(const Context& context, const View& hidden) const {
  const backend::Weight w = context.weight(matrix);
  require_shape(hidden, hidden.rows, w.cols(), "the input of the output projection");
  const View logits = context.take(hidden.rows, w.rows());
  context.backend.run(backend::op::Linear{.y = logits, .x = hidden, .w = w});
  return logits;
}

}  // namespace tandem::nn
