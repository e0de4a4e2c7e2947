#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>

#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"

namespace tandem {

namespace {

using dnnl::memory;

// Rows of a block are filled up to a multiple of this with zeros, so that the number of distinct shapes, and with it
// of primitives, stays small while token counts vary.
constexpr int64_t kRowStep = 64;
constexpr size_t kMostPrimitives = 512;

// m, n, k, the three strides, transposed a, transposed b, add
using Shape = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool, bool>;

memory::desc describe(int64_t rows, int64_t cols, int64_t stride, bool transposed, memory::data_type type) {
  return {{rows, cols}, type, transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

// One shape's compiled product, with its own scratch memory. Belongs to one thread.
class Product {
 public:
  Product(const dnnl::engine& engine, const Shape& shape) : stream_(engine) {
    const auto [m, n, k, stride_c, stride_a, stride_b, transposed_a, transposed_b, add] = shape;
    dnnl::post_ops after;
    if (add) {
      after.append_sum(1.0F);
    }
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(after);
    const auto a = describe(m, k, stride_a, transposed_a, memory::data_type::bf16);
    const auto b = describe(k, n, stride_b, transposed_b, memory::data_type::bf16);
    const auto c = describe(m, n, stride_c, false, memory::data_type::f32);
    product_ = dnnl::matmul({{a, b, c}, attributes, engine});
    a_ = memory(a, engine, nullptr);
    b_ = memory(b, engine, nullptr);
    c_ = memory(c, engine, nullptr);
  }

  void run(float* c, const bf16* a, const bf16* b) {
    a_.set_data_handle(const_cast<bf16*>(a));
    b_.set_data_handle(const_cast<bf16*>(b));
    c_.set_data_handle(c);
    product_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}});
    stream_.wait();
  }

 private:
  dnnl::stream stream_;
  dnnl::matmul product_;
  memory a_, b_, c_;
};

Product& product_for(const Shape& shape) {
  thread_local const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  thread_local std::map<Shape, Product> products;
  auto found = products.find(shape);
  if (found == products.end()) {
    if (products.size() == kMostPrimitives) {
      products.clear();
    }
    found = products.try_emplace(shape, engine, shape).first;
  }
  return found->second;
}

void matmul(const Target<float>& c, const Factor<bf16>& a, const Factor<bf16>& b, int64_t m, int64_t n, int64_t k) {
  const OneThread one_thread;
  try {
    product_for({m, n, k, c.stride, a.stride, b.stride, a.transposed, b.transposed, c.add}).run(c.data, a.data, b.data);
  } catch (const dnnl::error& error) {
    fail("oneDNN could not multiply [{}, {}] by [{}, {}] in bf16: {}", m, k, k, n, error.what());
  }
}

// The factor in f32. `rows` and `cols` are those in memory.
template <class Tag>
Factor<float> widened(const Factor<bf16>& from, int64_t rows, int64_t cols) {
  float* wide = scratch<float, Tag>(rows * cols);
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(from.data + row * from.stride, cols, wide + row * cols);
  }
  return {wide, cols, from.transposed};
}

}  // namespace

void multiply(const Target<float>& c, const Factor<bf16>& a, const Factor<bf16>& b, int64_t m, int64_t n, int64_t k) {
  static const bool supported = onednn_uses_avx512();
  if (!supported) {
    const auto wide_a = widened<struct WideA>(a, a.transposed ? k : m, a.transposed ? m : k);
    return multiply(c, wide_a, widened<struct WideB>(b, b.transposed ? n : k, b.transposed ? k : n), m, n, k);
  }
  if (a.transposed || m % kRowStep == 0) {
    return matmul(c, a, b, m, n, k);
  }
  const int64_t padded = (m / kRowStep + 1) * kRowStep;
  bf16* padded_a = scratch<bf16, struct PaddedA>(padded * k);
  float* padded_c = scratch<float, struct PaddedC>(padded * n);
  for (int64_t row = 0; row < m; ++row) {
    std::copy_n(a.data + row * a.stride, k, padded_a + row * k);
  }
  std::fill_n(padded_a + m * k, (padded - m) * k, bf16());
  matmul({padded_c, n}, {padded_a, k}, b, padded, n, k);
  for (int64_t row = 0; row < m; ++row) {
    float* to = c.data + row * c.stride;
    const float* from = padded_c + row * n;
    for (int64_t i = 0; i < n; ++i) {
      to[i] = c.add ? to[i] + from[i] : from[i];
    }
  }
}

}  // namespace tandem
