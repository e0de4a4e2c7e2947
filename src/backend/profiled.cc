#include "backend/profiled.h"

#include <algorithm>
#include <chrono>

namespace tandem {

namespace {

constexpr int kRepeats = 10;

double size(const View& view) { return static_cast<double>(view.size()); }

template <class... Views>
double bytes_of(const Views&... views) {
  return (0.0 + ... + (size(views) * static_cast<double>(size_of(views.dtype))));
}

std::vector<int32_t> numbers_of(Backend& backend, const View& view) {
  std::vector<int32_t> numbers(static_cast<size_t>(view.size()));
  backend.download(numbers.data(), view);
  return numbers;
}

// Pairs of a query and a key, over all sentences.
double attended(Backend& backend, const AttentionShape& shape) {
  const std::vector<int32_t> queries = numbers_of(backend, shape.query_starts);
  const std::vector<int32_t> keys = numbers_of(backend, shape.key_starts);
  double pairs = 0;
  for (size_t i = 0; i + 1 < queries.size(); ++i) {
    pairs += static_cast<double>(queries[i + 1] - queries[i]) * static_cast<double>(keys[i + 1] - keys[i]);
  }
  return shape.causal ? pairs / 2 : pairs;
}

std::string shape_of(const char* op, const View& view) { return fmt::format("{} {}x{}", op, view.rows, view.cols); }

}  // namespace

void ProfiledBackend::measure(const std::string& name, double bytes, double flops, const std::function<void()>& op) {
  using Clock = std::chrono::steady_clock;
  op();
  inner_.wait();
  const auto begin = Clock::now();
  for (int i = 0; i < kRepeats; ++i) {
    op();
  }
  inner_.wait();
  OpProfile& profile = profiles_[name];
  profile.name = name;
  ++profile.calls;
  profile.seconds += std::chrono::duration<double>(Clock::now() - begin).count() / kRepeats;
  profile.bytes += bytes;
  profile.flops += flops;
}

std::vector<OpProfile> ProfiledBackend::profile() const {
  std::vector<OpProfile> all;
  for (const auto& [name, profile] : profiles_) {
    all.push_back(profile);
  }
  std::sort(all.begin(), all.end(), [](const OpProfile& a, const OpProfile& b) { return a.seconds > b.seconds; });
  return all;
}

void ProfiledBackend::copy(const View& to, const View& from) {
  measure(shape_of("copy", to), bytes_of(to, from), 0, [&] { inner_.copy(to, from); });
}

void ProfiledBackend::fill_zero(const View& to) {
  measure(shape_of("fill_zero", to), bytes_of(to), 0, [&] { inner_.fill_zero(to); });
}

void ProfiledBackend::linear(const View& y, const View& x, const View& w, const Epilogue& epilogue) {
  const bool more = epilogue.activation != Activation::none || epilogue.dropout.rate > 0;
  measure(fmt::format("linear{} {}x{}x{}", more ? " activation dropout" : "", y.rows, y.cols, x.cols),
          bytes_of(y, x, w), 2 * size(y) * static_cast<double>(x.cols), [&] { inner_.linear(y, x, w, epilogue); });
}

void ProfiledBackend::linear_backward_input(const View& dx, const View& dy, const View& w,
                                            const BackwardEpilogue& epilogue, bool accumulate) {
  const bool more = epilogue.activation != Activation::none;
  measure(fmt::format("linear_backward_input{} {}x{}x{}", more ? " activation" : "", dx.rows, dx.cols, dy.cols),
          bytes_of(dx, dy, w), 2 * size(dx) * static_cast<double>(dy.cols),
          [&] { inner_.linear_backward_input(dx, dy, w, epilogue, accumulate); });
}

void ProfiledBackend::linear_backward_weight(const View& dw, const View& dbias, const View& dy, const View& x,
                                             RowParts parts, bool accumulate) {
  measure(fmt::format("linear_backward_weight{} {}x{}x{}", dbias.empty() ? "" : " bias", dw.rows, dw.cols, dy.rows),
          (accumulate ? 2 : 1) * bytes_of(dw) + bytes_of(dy, x), 2 * size(dw) * static_cast<double>(dy.rows),
          [&] { inner_.linear_backward_weight(dw, dbias, dy, x, parts, accumulate); });
}

void ProfiledBackend::linear_backward_weights(std::span<const WeightGradient> gradients, RowParts parts,
                                              bool accumulate) {
  std::string name = "linear_backward_weights";
  double bytes = 0, flops = 0;
  for (const WeightGradient& g : gradients) {
    name += fmt::format("{} {}x{}x{}", g.dbias.empty() ? "" : " bias", g.dw.rows, g.dw.cols, g.dy.rows);
    bytes += (accumulate ? 2 : 1) * bytes_of(g.dw) + bytes_of(g.dy, g.x);
    flops += 2 * size(g.dw) * static_cast<double>(g.dy.rows);
  }
  measure(name, bytes, flops, [&] { inner_.linear_backward_weights(gradients, parts, accumulate); });
}

void ProfiledBackend::embed(const View& x, const View& tokens, const View& position, const View& table,
                            const View& positions, float scale, const Dropout& dropout) {
  measure(shape_of("embed", x), 2 * bytes_of(x), 0,
          [&] { inner_.embed(x, tokens, position, table, positions, scale, dropout); });
}

void ProfiledBackend::embed_backward(const View& dtable, const View& dx, const TokenOrder& order, float scale,
                                     const Dropout& dropout) {
  const double rows = static_cast<double>(order.ids.cols * dtable.cols) * 8;
  measure(shape_of("embed_backward", dx), bytes_of(dx) + rows, 0,
          [&] { inner_.embed_backward(dtable, dx, order, scale, dropout); });
}

void ProfiledBackend::residual_norm(const View& sum, const View& normed, const View& statistics, const View& residual,
                                    const View& branch, const View& gamma, const View& beta, const Dropout& dropout) {
  measure(shape_of("residual_norm", normed), bytes_of(sum, normed, statistics, residual, branch), 0,
          [&] { inner_.residual_norm(sum, normed, statistics, residual, branch, gamma, beta, dropout); });
}

void ProfiledBackend::linear_residual_norm(const LinearResidualNorm& end) {
  measure(fmt::format("linear_residual_norm {}x{}x{}", end.normed.rows, end.normed.cols, end.x.cols),
          bytes_of(end.sum, end.normed, end.statistics, end.residual, end.x, end.w),
          2 * size(end.normed) * static_cast<double>(end.x.cols), [&] { inner_.linear_residual_norm(end); });
}

void ProfiledBackend::residual_norm_backward(const View& dresidual, const View& dbranch, const NormGradients& gradients,
                                             const View& dnormed, const View& dsum, const View& sum,
                                             const View& statistics, const View& gamma, const Dropout& dropout) {
  measure(shape_of("residual_norm_backward", dnormed), bytes_of(dresidual, dbranch, dnormed, dsum, sum, statistics), 0,
          [&] {
            inner_.residual_norm_backward(dresidual, dbranch, gradients, dnormed, dsum, sum, statistics, gamma,
                                          dropout);
          });
}

void ProfiledBackend::plan_attention(const AttentionShape& shape, int64_t query_rows, int64_t key_rows) {
  measure(fmt::format("plan_attention {}", query_rows), bytes_of(shape.plan), 0,
          [&] { inner_.plan_attention(shape, query_rows, key_rows); });
}

void ProfiledBackend::attention(const View& out, const View& log_sums, const View& q, const View& k, const View& v,
                                const AttentionShape& shape) {
  measure(shape_of(shape.causal ? "attention causal" : "attention", out), bytes_of(out, log_sums, q, k, v),
          4 * attended(inner_, shape) * static_cast<double>(q.cols),
          [&] { inner_.attention(out, log_sums, q, k, v, shape); });
}

void ProfiledBackend::attention_backward(const View& dq, const View& dk, const View& dv, const View& dout,
                                         const View& out, const View& log_sums, const View& q, const View& k,
                                         const View& v, const AttentionShape& shape) {
  measure(shape_of(shape.causal ? "attention_backward causal" : "attention_backward", dq),
          bytes_of(dq, dk, dv, dout, log_sums, q, k, v), 8 * attended(inner_, shape) * static_cast<double>(q.cols),
          [&] { inner_.attention_backward(dq, dk, dv, dout, out, log_sums, q, k, v, shape); });
}

void ProfiledBackend::cross_entropy(LossTotals* totals, const View& logits, const View& labels, float smoothing,
                                    const StepState* state) {
  measure(shape_of("cross_entropy", logits), 2 * bytes_of(logits), 0,
          [&] { inner_.cross_entropy(totals, logits, labels, smoothing, state); });
}

void ProfiledBackend::projected_loss(const ProjectedLoss& loss) {
  const View logits = loss.logits.slice_rows(0, loss.x.rows);
  measure(fmt::format("projected_loss {}x{}x{}", logits.rows, logits.cols, loss.x.cols),
          3 * bytes_of(logits, loss.w) + bytes_of(loss.dx, loss.dw, loss.x),
          6 * size(logits) * static_cast<double>(loss.x.cols), [&] { inner_.projected_loss(loss); });
}

void ProfiledBackend::gradient_norm(UpdateState* update, const View& gradients, const UpdateSettings& settings) {
  measure("gradient_norm", bytes_of(gradients), 0, [&] { inner_.gradient_norm(update, gradients, settings); });
}

void ProfiledBackend::adam(const View& masters, const View& m, const View& v, const View& compute,
                           const View& gradients, const AdamSettings& settings, const StepState* state,
                           const UpdateState* update) {
  measure("adam", 2 * bytes_of(masters, m, v) + bytes_of(compute, gradients), 0,
          [&] { inner_.adam(masters, m, v, compute, gradients, settings, state, update); });
}

void ProfiledBackend::moving_average(const View& average, const View& masters, const UpdateState* update) {
  measure("moving_average", 2 * bytes_of(average) + bytes_of(masters), 0,
          [&] { inner_.moving_average(average, masters, update); });
}

void ProfiledBackend::attention_cached(const View& out, const View& q, const CachedKeys& cache, int heads) {
  measure(shape_of("attention_cached", out), bytes_of(out, q), 0,
          [&] { inner_.attention_cached(out, q, cache, heads); });
}

void ProfiledBackend::top_log_probabilities(const View& values, const View& ids, const View& logits) {
  measure(shape_of("top_log_probabilities", logits), bytes_of(logits), 0,
          [&] { inner_.top_log_probabilities(values, ids, logits); });
}

}  // namespace tandem
