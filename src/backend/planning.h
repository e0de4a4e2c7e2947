// A backend that computes nothing: the same ops are given to it as to a real one, so that the memory they need is known
// before any is taken. Its addresses must not be followed.
#pragma once

#include "backend/backend.h"

namespace tandem {

class PlanningBackend final : public Backend {
 public:
  // Answers like `model` where the shape of the work depends on it.
  explicit PlanningBackend(const Backend& model) : model_(model) {}

  std::string description() const override { return "planning for " + model_.description(); }
  bool fixed_shape() const override { return model_.fixed_shape(); }
  bool computes(DType type) const override { return model_.computes(type); }
  int64_t loss_rows() const override { return model_.loss_rows(); }
  int64_t decode_sentences() const override { return model_.decode_sentences(); }
  int64_t decode_rows(int64_t needed) const override { return model_.decode_rows(needed); }
  int64_t most_rows(int64_t width) const override { return model_.most_rows(width); }
  void require_sizes(int64_t width, int64_t heads) const override { model_.require_sizes(width, heads); }
  MemorySizes memory_sizes() const override { return model_.memory_sizes(); }

  void wait() override {}
  void stamp(uint64_t*) override {}
  std::unique_ptr<Recording> record(std::function<void()>) override { return nullptr; }
  std::unique_ptr<Feed> make_feed(size_t) override { return nullptr; }
  std::unique_ptr<Outbox> make_outbox(size_t) override { return nullptr; }

  Buffer allocate(size_t bytes) override {
    return Buffer(&place_, bytes, Memory::device, [](void*) {});
  }
  void upload(const View&, const void*) override {}
  void download(void*, const View&) override {}
  void copy(const View&, const View&) override {}
  void fill_zero(const View&) override {}

  void linear(const View&, const View&, const View&, const Epilogue&) override {}
  void linear_backward_input(const View&, const View&, const View&, const BackwardEpilogue&, bool) override {}
  void linear_backward_weight(const View&, const View&, const View&, const View&, RowParts, bool) override {}
  void embed(const View&, const View&, const View&, const View&, const View&, float, const Dropout&) override {}
  void embed_backward(const View&, const View&, const TokenOrder&, float, const Dropout&) override {}
  void add_rows(const View&, const View&, const View&) override {}
  void residual_norm(const View&, const View&, const View&, const View&, const View&, const View&, const View&,
                     const Dropout&) override {}
  void residual_norm_backward(const View&, const View&, const NormGradients&, const View&, const View&, const View&,
                              const View&, const View&, const Dropout&) override {}
  int64_t attention_plan_size(const AttentionShape& shape, int64_t query_rows) const override {
    return model_.attention_plan_size(shape, query_rows);
  }
  void attention(const View&, const View&, const View&, const View&, const View&, const AttentionShape&) override {}
  void attention_backward(const View&, const View&, const View&, const View&, const View&, const View&, const View&,
                          const View&, const View&, const AttentionShape&) override {}
  void cross_entropy(LossTotals*, const View&, const View&, float, const StepState*) override {}
  void projected_loss(const ProjectedLoss&) override {}
  void gradient_norm(UpdateState*, const View&, const UpdateSettings&) override {}
  void sum_of_squares(const View&, const View&) override {}
  void prepare_update(UpdateState*, const View&, const UpdateSettings&) override {}
  void adam(const View&, const View&, const View&, const View&, const View&, const AdamSettings&, const StepState*,
            const UpdateState*) override {}
  void moving_average(const View&, const View&, const UpdateState*) override {}
  void attention_cached(const View&, const View&, const CachedKeys&, int) override {}
  void top_log_probabilities(const View&, const View&, const View&) override {}

 private:
  alignas(4096) static inline char place_ = 0;  // an address, no memory

  const Backend& model_;
};

}  // namespace tandem
