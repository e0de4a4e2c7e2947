// Runs every op on a device and on the CPU twin, and compares. What the device computed is what counts: a run that is
// checked goes on with the same bits as one that is not.
#pragma once

#include <vector>

#include "backend/forwarding.h"

namespace tandem {

class CheckedBackend final : public ForwardingBackend {
 public:
  // Takes over the device. threads: of the CPU twin, 0 = all usable cores.
  explicit CheckedBackend(std::unique_ptr<Backend> device, int threads = 0);

  // While on, each op is checked, and the first one whose results differ fails with one sentence. Not while recording.
  void set_checking(bool on) { checking_ = on; }
  int64_t ops_checked() const { return ops_checked_; }

  void copy(const View& to, const View& from) override;
  void fill_zero(const View& to) override;
  void hold_sums(bool on) override { inner_.hold_sums(on && !checking_); }  // each op is compared by itself
  void linear(const View& y, const View& x, const View& w, const Epilogue& epilogue) override;
  void linear_backward_input(const View& dx, const View& dy, const View& w, const BackwardEpilogue& epilogue,
                             bool accumulate) override;
  void linear_backward_weight(const View& dw, const View& dbias, const View& dy, const View& x, RowParts parts,
                              bool accumulate) override;
  void linear_backward_weights(std::span<const WeightGradient> gradients, RowParts parts, bool accumulate) override;
  void embed(const View& x, const View& tokens, const View& position, const View& table, const View& positions,
             float scale, const Dropout& dropout) override;
  void embed_backward(const View& dtable, const View& dx, const TokenOrder& order, float scale,
                      const Dropout& dropout) override;
  void add_rows(const View& table, const View& ids, const View& rows) override;
  void residual_norm(const View& sum, const View& normed, const View& statistics, const View& residual,
                     const View& branch, const View& gamma, const View& beta, const Dropout& dropout) override;
  void linear_residual_norm(const LinearResidualNorm& end) override;
  void residual_norm_backward(const View& dresidual, const View& dbranch, const NormGradients& gradients,
                              const View& dnormed, const View& dsum, const View& sum, const View& statistics,
                              const View& gamma, const Dropout& dropout) override;
  void attention(const View& out, const View& log_sums, const View& q, const View& k, const View& v,
                 const AttentionShape& shape) override;
  void attention_backward(const View& dq, const View& dk, const View& dv, const View& dout, const View& out,
                          const View& log_sums, const View& q, const View& k, const View& v,
                          const AttentionShape& shape) override;
  void cross_entropy(LossTotals* totals, const View& logits, const View& labels, float smoothing,
                     const StepState* state) override;
  void projected_loss(const ProjectedLoss& loss) override;
  void gradient_norm(UpdateState* update, const View& gradients, const UpdateSettings& settings) override;
  void sum_of_squares(const View& sum, const View& x) override;
  void prepare_update(UpdateState* update, const View& sums, const UpdateSettings& settings) override;
  void adam(const View& masters, const View& m, const View& v, const View& compute, const View& gradients,
            const AdamSettings& settings, const StepState* state, const UpdateState* update) override;
  void moving_average(const View& average, const View& masters, const UpdateState* update) override;
  void attention_cached(const View& out, const View& q, const CachedKeys& cache, int heads) override;
  void top_log_probabilities(const View& values, const View& ids, const View& logits) override;

 private:
  class Twin;
  // `give` gives the op to a backend with the views that the twin hands it: the device's own, then the CPU's copies.
  // `f32`: what may be said of f32 outputs.
  enum class Sums : uint8_t { of_the_same, of_rounded };
  template <class Give>
  void check(const char* op, const std::vector<View>& outputs, const Give& give, Sums f32 = Sums::of_the_same);

  std::unique_ptr<Backend> device_, cpu_;
  bool checking_ = false;
  int64_t ops_checked_ = 0;
};

}  // namespace tandem
