// cuBLASLt's products, in f32 by oneDNN: rounded once, where they are written.
#include <cublasLt.h>
#include <dnnl.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "emulated_gpu/error.h"
#include "emulated_gpu/ptx/operations.h"
#include "emulated_gpu/runtime/device_memory.h"
#include "emulated_gpu/runtime/queue.h"

namespace emulated {

namespace {

// A column-major matrix, or the row-major matrix of its columns.
struct Layout {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t stride;

  size_t width() const { return type == CUDA_R_16BF ? 2 : 4; }
};

struct Product {
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  cudaDataType bias_type = CUDA_R_16BF;
};

// What is behind a handle is the library's business.
template <class Handle, class T>
Handle keep(const T& value) {
  return reinterpret_cast<Handle>(new T(value));
}
template <class T, class Handle>
T& behind(Handle handle) {
  return *reinterpret_cast<T*>(handle);
}

float value_at(const void* data, cudaDataType type, size_t index) {
  if (type == CUDA_R_32F) {
    return static_cast<const float*>(data)[index];
  }
  return from_bf16(static_cast<const uint16_t*>(data)[index]);
}

std::vector<float> read(const void* data, const Layout& layout) {
  std::vector<float> values(layout.rows * layout.cols);
  for (size_t c = 0; c < layout.cols; ++c) {
    for (size_t r = 0; r < layout.rows; ++r) {
      values[c * layout.rows + r] = value_at(data, layout.type, c * static_cast<size_t>(layout.stride) + r);
    }
  }
  return values;
}

void write(void* data, const Layout& layout, const std::vector<float>& values) {
  for (size_t c = 0; c < layout.cols; ++c) {
    for (size_t r = 0; r < layout.rows; ++r) {
      const size_t index = c * static_cast<size_t>(layout.stride) + r;
      const float value = values[c * layout.rows + r];
      if (layout.type == CUDA_R_32F) {
        static_cast<float*>(data)[index] = value;
      } else {
        static_cast<uint16_t*>(data)[index] = static_cast<uint16_t>(to_bf16(value));
      }
    }
  }
}

void require_on_gpu(const void* data, const Layout& layout, const char* what) {
  DeviceMemory::instance().require_inside(data, static_cast<size_t>(layout.stride) * layout.width(),
                                          layout.rows * layout.width(), layout.cols, what);
}

struct Work {
  Product product;
  Layout a, b, d;
  const void *a_data, *b_data;
  void* d_data;
  float alpha, beta;

  void operator()() const {
    const std::vector<float> left = read(a_data, a), right = read(b_data, b);
    std::vector<float> sums = beta == 0 ? std::vector<float>(d.rows * d.cols) : read(d_data, d);
    const auto m = static_cast<dnnl_dim_t>(d.rows), n = static_cast<dnnl_dim_t>(d.cols);
    const bool transposed = product.transpose_a == CUBLAS_OP_T;
    const auto k = static_cast<dnnl_dim_t>(transposed ? a.rows : a.cols);
    const auto letter = [](cublasOperation_t operation) { return operation == CUBLAS_OP_T ? 'T' : 'N'; };
    // Row-major, everything is transposed.
    if (k == 0) {
      std::ranges::for_each(sums, [&](float& sum) { sum *= beta; });
    } else {
      const dnnl_status_t status = dnnl_sgemm(letter(product.transpose_b), letter(product.transpose_a), n, m, k, alpha,
                                              right.data(), static_cast<dnnl_dim_t>(b.rows), left.data(),
                                              static_cast<dnnl_dim_t>(a.rows), beta, sums.data(), m);
      require(status == dnnl_success, "oneDNN failed at the emulated GPU's product of {}x{}x{}", m, n, k);
    }
    finish(sums);
    write(d_data, d, sums);
  }

  void finish(std::vector<float>& sums) const {
    const bool bias = product.epilogue == CUBLASLT_EPILOGUE_BIAS || product.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    const bool relu = product.epilogue == CUBLASLT_EPILOGUE_RELU || product.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    for (size_t i = 0; bias && i < sums.size(); ++i) {
      sums[i] += value_at(product.bias, product.bias_type, i % d.rows);
    }
    for (size_t i = 0; relu && i < sums.size(); ++i) {
      sums[i] = sums[i] < 0 ? 0 : sums[i];
    }
  }
};

}  // namespace
}  // namespace emulated

using namespace emulated;

bool cublaslt_has_algorithms() { return true; }

extern "C" {

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t, cudaDataType_t) {
  *operation = keep<cublasLtMatmulDesc_t>(Product{});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete &behind<Product>(operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  Product& product = behind<Product>(operation);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      std::memcpy(&product.transpose_a, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      std::memcpy(&product.transpose_b, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      std::memcpy(&product.epilogue, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      std::memcpy(&product.bias, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      std::memcpy(&product.bias_type, value, bytes);
      break;
    default:
      emulated::fail("the emulated GPU's products do not know attribute {}", static_cast<int>(attribute));
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t stride) {
  *layout = keep<cublasLtMatrixLayout_t>(Layout{type, rows, cols, stride});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &behind<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void*, size_t,
                              cudaStream_t stream) {
  emulated::require(c == d, "the emulated GPU's products are added to what they replace");
  const Work work{behind<Product>(operation),
                  behind<Layout>(a_layout),
                  behind<Layout>(b_layout),
                  behind<Layout>(d_layout),
                  a,
                  b,
                  d,
                  *static_cast<const float*>(alpha),
                  *static_cast<const float*>(beta)};
  require_on_gpu(a, work.a, "a product reads");
  require_on_gpu(b, work.b, "a product reads");
  require_on_gpu(d, work.d, "a product writes");
  give(stream, work);
  return CUBLAS_STATUS_SUCCESS;
}
}
