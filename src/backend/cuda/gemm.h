// Matrix products through cuBLASLt: row-major views in, an algorithm chosen once for each shape.
//
// The algorithm of a shape is that of the loaded table (see load_table), else the first that cuBLASLt's heuristic
// proposes; either way it is the same each time, so the same input gives the same bits.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <map>

#include "backend/backend.h"

namespace tandem::backend::cuda {

// c = op(a) op(b) + beta * c, then bias and relu if they are given
struct GemmCall {
  View c;          // row-major, in bf16 or f32
  ConstView a, b;  // row-major, in bf16
  bool transpose_a = false;
  bool transpose_b = false;
  float beta = 0;
  bool relu = false;
  ConstView bias = {};  // bf16 [1, c.cols], or empty
};

// Shape and layout: what an algorithm depends on.
struct GemmKey {
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  int transpose_a = 0, transpose_b = 0, wide = 0, accumulate = 0, epilogue = 0, alignment = 0;

  auto operator<=>(const GemmKey&) const = default;
};

class Gemm {
 public:
  static constexpr size_t kWorkspaceBytes = size_t{64} << 20;

  Gemm(Backend& backend, cudaStream_t stream);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  void run(const GemmCall& call);

  // While tuning, the first call of each shape times the algorithms that the heuristic proposes and keeps the fastest.
  void set_tuning(bool tuning);
  // The algorithms in use, as text: one line per shape. A table of another GPU or library version is rejected.
  std::string table() const;
  void load_table(const std::string& text, const std::string& name);

 private:
  struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
    double microseconds = 0;  // 0 if it was not timed
  };

  Plan make_plan(const GemmKey& key, const GemmCall& call);
  void choose_algorithm(Plan& plan, const GemmKey& key, const GemmCall& call);
  cublasStatus_t launch(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const GemmCall& call);
  double time_algorithm(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const GemmCall& call);
  std::string header() const;

  Backend& backend_;
  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_;
  Buffer workspace_, cache_;
  bool tuning_ = false;
  std::map<GemmKey, Plan> plans_;
  std::map<GemmKey, cublasLtMatmulAlgo_t> loaded_;
};

}  // namespace tandem::backend::cuda
