// The arithmetic on an NVIDIA GPU: bf16 with f32 masters, one stream. Each op is defined in the file of its name.
#pragma once

#include <cuda_runtime.h>

#include "backend/backend.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/late_sums.h"
#include "backend/cuda/products.h"

namespace tandem::backend {

namespace cuda {
constexpr int64_t kWidestHead = 128;   // columns of an attention head
constexpr int64_t kWidestNorm = 8192;  // columns of a norm
constexpr int64_t kSpareRows = 8;      // extra rows of logits for ProjectedLoss
constexpr int kPieceRows = 32;         // rows of an id that one warp of EmbedBackward adds up
}  // namespace cuda

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int device);
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  std::string description() const override;
  DeviceTraits traits() const override;
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
  Buffer allocate_host(size_t bytes) override;
  void upload(const View& to, const void* from) override;
  void download(void* to, const ConstView& from) override;

  void run(const op::Any& op) override {
    std::visit([this](const auto& one) { one.run(*this); }, op);
  }
  void hold_sums(bool on) override { late_sums_->hold(on); }
  int64_t attention_plan_size(const AttentionShape& shape, int64_t query_rows) const override;

  // ---- used by the ops
  int processors() const { return processors_; }  // streaming multiprocessors
  const cuda::Chip& chip();                       // used by kernel_of
  cudaStream_t queue() const { return stream_; }  // runs all ops
  cuda::Gemm& gemm() { return *gemm_; }
  cuda::LateSums& late_sums() { return *late_sums_; }
  // Memory for an op's partial sums; the next op overwrites it. It is allocated at construction, so that it may be used
  // while work is recorded.
  template <class T>
  T* scratch(int64_t count) {
    require(static_cast<size_t>(count) * sizeof(T) <= scratch_.bytes(), "an op wants {} bytes of scratch memory of {}",
            static_cast<size_t>(count) * sizeof(T), scratch_.bytes());
    return static_cast<T*>(scratch_.data());
  }

 private:
  void require_code() const;
  static cudaError_t look_for_code(cudaFuncAttributes& found);  // looks for this program's code for the chosen GPU

  int device_;
  int processors_ = 0;
  cuda::Chip chip_;                     // queried from the driver by the first product that needs it
  cudaStream_t stream_ = nullptr;       // runs all ops
  cudaStream_t copy_stream_ = nullptr;  // runs uploads
  Buffer scratch_;
  std::unique_ptr<cuda::LateSums> late_sums_;
  std::unique_ptr<cuda::Gemm> gemm_;
};

}  // namespace tandem::backend
