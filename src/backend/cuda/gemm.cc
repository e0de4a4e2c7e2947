#include "backend/cuda/gemm.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <sstream>
#include <vector>

#include "backend/cuda/check.h"

namespace tandem::backend::cuda {

namespace {

constexpr int kProposals = 64;    // requested when tuning, which times them
constexpr int kFewProposals = 8;  // requested if some may have to be left out
// If a product's sum is split into parts, cuBLASLt 13.1 may leave out the last terms unless their number is a multiple
// of this (6,145 in four parts: the last one is missing).
constexpr int64_t kSplitUnit = 64;
constexpr size_t kCacheBytes = size_t{160} << 20;  // more than any GPU's L2 cache

cudaDataType_t type_of(const ConstView& view) {
  require(view.dtype == DType::bf16 || view.dtype == DType::f32, "a matrix product of {} on the GPU",
          name_of(view.dtype));
  return view.dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// Indexed by GemmKey::epilogue: 1 for a bias, plus 2 for relu.
constexpr cublasLtEpilogue_t kEpilogues[] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU,
                                             CUBLASLT_EPILOGUE_RELU_BIAS};

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), "describing a matrix product");
}

int64_t stride_of(const ConstView& view) { return view.rows > 1 ? view.stride : std::max(view.stride, view.cols); }

// The largest power of two, up to 16, that divides the addresses of all rows of the view.
int alignment_of(const ConstView& view) {
  const auto bits =
      reinterpret_cast<uintptr_t>(view.data) | (static_cast<uintptr_t>(stride_of(view)) * size_of(view.dtype));
  return std::min(16, 1 << std::countr_zero(bits | 16));
}

GemmKey key_of(const GemmCall& call) {
  GemmKey key;
  key.m = call.c.cols;  // cuBLASLt counts columns first: its matrices are the transposes of ours
  key.n = call.c.rows;
  key.k = call.transpose_a ? call.a.rows : call.a.cols;
  key.lda = stride_of(call.b);
  key.ldb = stride_of(call.a);
  key.ldc = stride_of(call.c);
  key.transpose_a = call.transpose_b ? 1 : 0;
  key.transpose_b = call.transpose_a ? 1 : 0;
  key.wide = call.c.dtype == DType::f32 ? 1 : 0;
  key.accumulate = call.beta != 0 ? 1 : 0;
  key.epilogue = (call.bias.empty() ? 0 : 1) + (call.relu ? 2 : 0);
  key.alignment = std::min({alignment_of(call.a), alignment_of(call.b), alignment_of(call.c)});
  return key;
}

bool may_split(const GemmKey& key) { return key.k % kSplitUnit == 0; }

bool splits(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t parts = 1;
  size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, &written);
  return status != CUBLAS_STATUS_SUCCESS || parts > 1;
}

void set_pointers(cublasLtMatmulDesc_t operation, const GemmCall& call) {
  if (!call.bias.empty()) {
    set<const void*>(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias.data);
  }
}

}  // namespace

Gemm::Gemm(Backend& backend, cudaStream_t stream)
    : backend_(backend), stream_(stream), workspace_(backend.allocate(kWorkspaceBytes)) {
  check(cublasLtCreate(&handle_), "starting cuBLASLt");
}

Gemm::~Gemm() {
  for (auto& [key, plan] : plans_) {
    cublasLtMatrixLayoutDestroy(plan.a);
    cublasLtMatrixLayoutDestroy(plan.b);
    cublasLtMatrixLayoutDestroy(plan.c);
    cublasLtMatmulDescDestroy(plan.operation);
  }
  cublasLtDestroy(handle_);
}

void Gemm::set_tuning(bool tuning) {
  tuning_ = tuning;
  cache_ = tuning ? backend_.allocate(kCacheBytes) : Buffer();
}

void Gemm::run(const GemmCall& call) {
  if (call.c.size() == 0) {
    return;
  }
  const GemmKey key = key_of(call);
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    found = plans_.emplace(key, make_plan(key, call)).first;
  }
  set_pointers(found->second.operation, call);
  check(launch(found->second, found->second.algorithm, call), "a matrix product");
}

cublasStatus_t Gemm::launch(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const GemmCall& call) {
  constexpr float kAlpha = 1;
  return cublasLtMatmul(handle_, plan.operation, &kAlpha, call.b.data, plan.a, call.a.data, plan.b, &call.beta,
                        call.c.data, plan.c, call.c.data, plan.c, &algorithm, workspace_.data(), workspace_.bytes(),
                        stream_);
}

Gemm::Plan Gemm::make_plan(const GemmKey& key, const GemmCall& call) {
  Plan plan;
  check(cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a matrix product");
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_a != 0 ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_b != 0 ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, kEpilogues[key.epilogue]);
  if (!call.bias.empty()) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF);
  }
  set_pointers(plan.operation, call);
  const auto layout = [](cublasLtMatrixLayout_t& made, const ConstView& view) {
    check(cublasLtMatrixLayoutCreate(&made, type_of(view), static_cast<uint64_t>(view.cols),
                                     static_cast<uint64_t>(view.rows), stride_of(view)),
          "describing a matrix");
  };
  layout(plan.a, call.b);
  layout(plan.b, call.a);
  layout(plan.c, call.c);
  cublasLtMatmulHeuristicResult_t checked{};
  if (const auto known = loaded_.find(key);
      known != loaded_.end() && !tuning_ && (may_split(key) || !splits(known->second)) &&
      cublasLtMatmulAlgoCheck(handle_, plan.operation, plan.a, plan.b, plan.c, plan.c, &known->second, &checked) ==
          CUBLAS_STATUS_SUCCESS &&
      checked.workspaceSize <= workspace_.bytes()) {
    plan.algorithm = known->second;
  } else {
    choose_algorithm(plan, key, call);
  }
  return plan;
}

void Gemm::choose_algorithm(Plan& plan, const GemmKey& key, const GemmCall& call) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "choosing an algorithm");
  const size_t workspace = workspace_.bytes();
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                       sizeof workspace);
  const auto alignment = static_cast<uint32_t>(key.alignment);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment);
  }
  if (!may_split(key)) {
    const uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none,
                                               sizeof none),
          "choosing an algorithm");
  }
  std::vector<cublasLtMatmulHeuristicResult_t> proposals(tuning_ ? kProposals : may_split(key) ? 1 : kFewProposals);
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.a, plan.b, plan.c, plan.c, preference,
                                     static_cast<int>(proposals.size()), proposals.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  proposals.resize(static_cast<size_t>(count));
  std::erase_if(proposals, [](const auto& proposal) { return proposal.state != CUBLAS_STATUS_SUCCESS; });
  if (!may_split(key)) {
    std::erase_if(proposals, [](const auto& proposal) { return splits(proposal.algo); });
  }
  require(status == CUBLAS_STATUS_SUCCESS && !proposals.empty(),
          "cuBLASLt has no algorithm for a product of {}x{}x{} (leading dimensions {}, {}, {}, epilogue {}): {}", key.m,
          key.n, key.k, key.lda, key.ldb, key.ldc, key.epilogue,
          status == CUBLAS_STATUS_SUCCESS ? "none that adds up all terms" : cublasLtGetStatusString(status));
  plan.algorithm = proposals[0].algo;
  if (tuning_) {
    plan.microseconds = 1e30;
    for (const auto& proposal : proposals) {
      const double time = time_algorithm(plan, proposal.algo, call);
      if (time < plan.microseconds) {
        plan.microseconds = time;
        plan.algorithm = proposal.algo;
      }
    }
  }
}

// The best of several runs, each with a cold cache, as in a step.
double Gemm::time_algorithm(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const GemmCall& call) {
  constexpr int kRepeats = 6;
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "creating an event");
  check(cudaEventCreate(&end), "creating an event");
  double best = 1e30;
  for (int i = 0; i < kRepeats; ++i) {
    check(cudaMemsetAsync(cache_.data(), i, cache_.bytes(), stream_), "clearing the cache");
    check(cudaEventRecord(begin, stream_), "recording an event");
    if (launch(plan, algorithm, call) != CUBLAS_STATUS_SUCCESS) {
      break;
    }
    float milliseconds = 0;
    check(cudaEventRecord(end, stream_), "recording an event");
    check(cudaEventSynchronize(end), "timing a matrix product");
    check(cudaEventElapsedTime(&milliseconds, begin, end), "timing a matrix product");
    best = std::min(best, static_cast<double>(milliseconds) * 1e3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best;
}

// ---- the table: a first line that names the GPU and the library, then "m n k ... : eight words" for each shape

std::string Gemm::header() const {
  int device = 0;
  cudaDeviceProp properties{};
  check(cudaGetDevice(&device), "asking for the GPU");
  check(cudaGetDeviceProperties(&properties, device), "reading the GPU's name");
  return fmt::format("tandem matrix products 1; {}; cuBLASLt {}", properties.name, cublasLtGetVersion());
}

std::string Gemm::table() const {
  std::string text = header() + "\n";
  for (const auto& [key, plan] : plans_) {
    text += fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} :", key.m, key.n, key.k, key.lda, key.ldb, key.ldc,
                        key.transpose_a, key.transpose_b, key.wide, key.accumulate, key.epilogue, key.alignment);
    for (const uint64_t word : plan.algorithm.data) {
      text += fmt::format(" {:016x}", word);
    }
    text += fmt::format(" # {:.1f} us\n", plan.microseconds);
  }
  return text;
}

void Gemm::load_table(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  require(line == header(), "{} was made for \"{}\", but this is \"{}\"; run tandem tune again", name, line, header());
  std::map<GemmKey, cublasLtMatmulAlgo_t> loaded;
  for (int number = 2; std::getline(lines, line); ++number) {
    GemmKey key;
    cublasLtMatmulAlgo_t algorithm{};
    std::istringstream fields(line);
    fields >> key.m >> key.n >> key.k >> key.lda >> key.ldb >> key.ldc >> key.transpose_a >> key.transpose_b >>
        key.wide >> key.accumulate >> key.epilogue >> key.alignment;
    std::string colon;
    fields >> colon >> std::hex;
    for (uint64_t& word : algorithm.data) {
      fields >> word;
    }
    require(!fields.fail() && colon == ":", "{}:{} is not a line of a table of matrix products", name, number);
    loaded[key] = algorithm;
  }
  loaded_ = std::move(loaded);
}

}  // namespace tandem::backend::cuda
