// The arithmetic on an NVIDIA GPU: bf16 with f32 masters, one stream. Each op is defined in the file of its name.
#pragma once

#include <cuda_runtime.h>

#include "backend/backend.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/late_sums.h"

namespace tandem {

namespace cuda {
struct AttentionArguments;
constexpr int64_t kWidestHead = 128;   // columns of an attention head
constexpr int64_t kWidestNorm = 8192;  // columns of a norm
}  // namespace cuda

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int device);
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  std::string description() const override;
  bool fixed_shape() const override { return true; }
  bool computes(DType type) const override { return type == DType::bf16; }
  int64_t loss_rows() const override;
  int64_t decode_sentences() const override { return 512; }
  // The host asks cuBLASLt for an algorithm for every new number of rows, which takes longer than a few rows more do.
  int64_t decode_rows(int64_t needed) const override { return (needed + 63) / 64 * 64; }
  int64_t most_rows(int64_t width) const override;
  void require_sizes(int64_t width, int64_t heads) const override;
  MemorySizes memory_sizes() const override;

  void wait() override;
  DeviceStream stream() const override { return {stream_, device_}; }
  void stamp(uint64_t* time) override;
  std::unique_ptr<Recording> record(std::function<void()> body) override;
  std::unique_ptr<Feed> make_feed(size_t bytes) override;
  std::unique_ptr<Outbox> make_outbox(size_t bytes) override;

  void set_tuning(bool on) override { gemm_->set_tuning(on); }
  std::string algorithms() const override { return gemm_->table(); }
  void use_algorithms(const std::string& table, const std::string& name) override { gemm_->load_table(table, name); }

  Buffer allocate(size_t bytes) override;
  void upload(const View& to, const void* from) override;
  void download(void* to, const View& from) override;
  void copy(const View& to, const View& from) override;
  void fill_zero(const View& to) override;

  void hold_sums(bool on) override { late_sums_->hold(on); }
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

  int64_t attention_plan_size(const AttentionShape& shape, int64_t query_rows) const override;
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
  void sum_of_squares(const View& sum, const View& x) override;
  void prepare_update(UpdateState* update, const View& sums, const UpdateSettings& settings) override;
  void adam(const View& masters, const View& m, const View& v, const View& compute, const View& gradients,
            const AdamSettings& settings, const StepState* state, const UpdateState* update) override;
  void moving_average(const View& average, const View& masters, const UpdateState* update) override;

  void attention_cached(const View& out, const View& q, const CachedKeys& cache, int heads) override;
  void top_log_probabilities(const View& values, const View& ids, const View& logits) override;

 private:
  // Memory for what an op adds up in parts; the next op overwrites it. Fixed at construction, so that it may be asked
  // for while work is recorded.
  template <class T>
  T* scratch(int64_t count) {
    require(static_cast<size_t>(count) * sizeof(T) <= scratch_.bytes(), "an op wants {} bytes of scratch memory of {}",
            static_cast<size_t>(count) * sizeof(T), scratch_.bytes());
    return static_cast<T*>(scratch_.data());
  }

  void require_code() const;
  static cudaError_t look_for_code(cudaFuncAttributes& found);  // of this program for the chosen GPU

  // With a plan of its own where the shape has none. tile: the kernel's.
  cuda::AttentionArguments attention_arguments(AttentionShape shape, int tile, const View& q, const View& k);
  int squares_in_parts(double* parts, const View& x);
  void sum_columns(const View& sums, const View& dy, bool accumulate);

  int device_;
  int processors_ = 0;                  // streaming multiprocessors
  cudaStream_t stream_ = nullptr;       // all ops
  cudaStream_t copy_stream_ = nullptr;  // data on its way in
  Buffer scratch_;
  std::unique_ptr<cuda::LateSums> late_sums_;
  std::unique_ptr<cuda::Gemm> gemm_;
};

}  // namespace tandem
