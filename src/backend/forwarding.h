// A backend in front of another one, which does all that a derived class does not define.
#pragma once

#include "backend/backend.h"

namespace tandem {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(Backend& inner) : inner_(inner) {}

  std::string description() const override { return inner_.description(); }
  bool fixed_shape() const override { return inner_.fixed_shape(); }
  bool computes(DType type) const override { return inner_.computes(type); }
  int64_t loss_rows() const override { return inner_.loss_rows(); }
  int64_t decode_sentences() const override { return inner_.decode_sentences(); }
  int64_t decode_rows(int64_t needed) const override { return inner_.decode_rows(needed); }
  int64_t most_rows(int64_t width) const override { return inner_.most_rows(width); }
  void require_sizes(int64_t width, int64_t heads) const override { inner_.require_sizes(width, heads); }
  MemorySizes memory_sizes() const override { return inner_.memory_sizes(); }
  void wait() override { inner_.wait(); }
  DeviceStream stream() const override { return inner_.stream(); }
  void stamp(uint64_t* time) override { inner_.stamp(time); }
  std::unique_ptr<Recording> record(std::function<void()> body) override { return inner_.record(std::move(body)); }
  std::unique_ptr<Feed> make_feed(size_t bytes) override { return inner_.make_feed(bytes); }
  std::unique_ptr<Outbox> make_outbox(size_t bytes) override { return inner_.make_outbox(bytes); }
  void set_tuning(bool on) override { inner_.set_tuning(on); }
  std::string algorithms() const override { return inner_.algorithms(); }
  void use_algorithms(const std::string& table, const std::string& name) override {
    inner_.use_algorithms(table, name);
  }
  Buffer allocate(size_t bytes) override { return inner_.allocate(bytes); }
  void upload(const View& to, const void* from) override { inner_.upload(to, from); }
  void download(void* to, const View& from) override { inner_.download(to, from); }
  void copy(const View& to, const View& from) override { inner_.copy(to, from); }
  void fill_zero(const View& to) override { inner_.fill_zero(to); }
  void hold_sums(bool on) override { inner_.hold_sums(on); }

  void linear(const View& y, const View& x, const View& w, const Epilogue& epilogue) override {
    inner_.linear(y, x, w, epilogue);
  }
  void linear_backward_input(const View& dx, const View& dy, const View& w, const BackwardEpilogue& epilogue,
                             bool accumulate) override {
    inner_.linear_backward_input(dx, dy, w, epilogue, accumulate);
  }
  void linear_backward_weight(const View& dw, const View& dbias, const View& dy, const View& x, RowParts parts,
                              bool accumulate) override {
    inner_.linear_backward_weight(dw, dbias, dy, x, parts, accumulate);
  }
  void linear_backward_weights(std::span<const WeightGradient> gradients, RowParts parts, bool accumulate) override {
    inner_.linear_backward_weights(gradients, parts, accumulate);
  }
  void embed(const View& x, const View& tokens, const View& position, const View& table, const View& positions,
             float scale, const Dropout& dropout) override {
    inner_.embed(x, tokens, position, table, positions, scale, dropout);
  }
  void embed_backward(const View& dtable, const View& dx, const TokenOrder& order, float scale,
                      const Dropout& dropout) override {
    inner_.embed_backward(dtable, dx, order, scale, dropout);
  }
  void add_rows(const View& table, const View& ids, const View& rows) override { inner_.add_rows(table, ids, rows); }
  void residual_norm(const View& sum, const View& normed, const View& statistics, const View& residual,
                     const View& branch, const View& gamma, const View& beta, const Dropout& dropout) override {
    inner_.residual_norm(sum, normed, statistics, residual, branch, gamma, beta, dropout);
  }
  void linear_residual_norm(const LinearResidualNorm& end) override { inner_.linear_residual_norm(end); }
  void residual_norm_backward(const View& dresidual, const View& dbranch, const NormGradients& gradients,
                              const View& dnormed, const View& dsum, const View& sum, const View& statistics,
                              const View& gamma, const Dropout& dropout) override {
    inner_.residual_norm_backward(dresidual, dbranch, gradients, dnormed, dsum, sum, statistics, gamma, dropout);
  }
  int64_t attention_plan_size(const AttentionShape& shape, int64_t query_rows) const override {
    return inner_.attention_plan_size(shape, query_rows);
  }
  void plan_attention(const AttentionShape& shape, int64_t query_rows, int64_t key_rows) override {
    inner_.plan_attention(shape, query_rows, key_rows);
  }
  void attention(const View& out, const View& log_sums, const View& q, const View& k, const View& v,
                 const AttentionShape& shape) override {
    inner_.attention(out, log_sums, q, k, v, shape);
  }
  void attention_backward(const View& dq, const View& dk, const View& dv, const View& dout, const View& out,
                          const View& log_sums, const View& q, const View& k, const View& v,
                          const AttentionShape& shape) override {
    inner_.attention_backward(dq, dk, dv, dout, out, log_sums, q, k, v, shape);
  }
  void cross_entropy(LossTotals* totals, const View& logits, const View& labels, float smoothing,
                     const StepState* state) override {
    inner_.cross_entropy(totals, logits, labels, smoothing, state);
  }
  void projected_loss(const ProjectedLoss& loss) override { inner_.projected_loss(loss); }
  void gradient_norm(UpdateState* update, const View& gradients, const UpdateSettings& settings) override {
    inner_.gradient_norm(update, gradients, settings);
  }
  void sum_of_squares(const View& sum, const View& x) override { inner_.sum_of_squares(sum, x); }
  void prepare_update(UpdateState* update, const View& sums, const UpdateSettings& settings) override {
    inner_.prepare_update(update, sums, settings);
  }
  void adam(const View& masters, const View& m, const View& v, const View& compute, const View& gradients,
            const AdamSettings& settings, const StepState* state, const UpdateState* update) override {
    inner_.adam(masters, m, v, compute, gradients, settings, state, update);
  }
  void moving_average(const View& average, const View& masters, const UpdateState* update) override {
    inner_.moving_average(average, masters, update);
  }
  void attention_cached(const View& out, const View& q, const CachedKeys& cache, int heads) override {
    inner_.attention_cached(out, q, cache, heads);
  }
  void top_log_probabilities(const View& values, const View& ids, const View& logits) override {
    inner_.top_log_probabilities(values, ids, logits);
  }

 protected:
  Backend& inner_;
};

}  // namespace tandem
