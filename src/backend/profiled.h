// Times every op of a piece of work by itself: each is run several times in a row, so that the time is the device's and
// not that of giving the work. What is computed is therefore of no use afterwards.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/forwarding.h"

namespace tandem {

struct OpProfile {
  std::string name;  // op and shape
  int64_t calls = 0;
  double seconds = 0;  // of all calls
  double bytes = 0;    // that must be moved at least, over all calls
  double flops = 0;    // of matrix products and attention
};

class ProfiledBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  std::vector<OpProfile> profile() const;  // the longest first
  void forget() { profiles_.clear(); }     // what was measured so far

  void hold_sums(bool) override {}  // an op's sums are part of it
  void copy(const View& to, const View& from) override;
  void fill_zero(const View& to) override;
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
  void residual_norm(const View& sum, const View& normed, const View& statistics, const View& residual,
                     const View& branch, const View& gamma, const View& beta, const Dropout& dropout) override;
  void linear_residual_norm(const LinearResidualNorm& end) override;
  void residual_norm_backward(const View& dresidual, const View& dbranch, const NormGradients& gradients,
                              const View& dnormed, const View& dsum, const View& sum, const View& statistics,
                              const View& gamma, const Dropout& dropout) override;
  void plan_attention(const AttentionShape& shape, int64_t query_rows, int64_t key_rows) override;
  void attention(const View& out, const View& log_sums, const View& q, const View& k, const View& v,
                 const AttentionShape& shape) override;
  void attention_backward(const View& dq, const View& dk, const View& dv, const View& dout, const View& out,
                          const View& log_sums, const View& q, const View& k, const View& v,
                          const AttentionShape& shape) override;
  void cross_entropy(LossTotals* totals, const View& logits, const View& labels, float smoothing,
                     const StepState* state) override;
  void projected_loss(const ProjectedLoss& loss) override;
  void gradient_norm(UpdateState* update, const View& gradients, const UpdateSettings& settings) override;
  void adam(const View& masters, const View& m, const View& v, const View& compute, const View& gradients,
            const AdamSettings& settings, const StepState* state, const UpdateState* update) override;
  void moving_average(const View& average, const View& masters, const UpdateState* update) override;
  void attention_cached(const View& out, const View& q, const CachedKeys& cache, int heads) override;
  void top_log_probabilities(const View& values, const View& ids, const View& logits) override;

 private:
  void measure(const std::string& name, double bytes, double flops, const std::function<void()>& op);

  std::map<std::string, OpProfile> profiles_;
};

}  // namespace tandem
