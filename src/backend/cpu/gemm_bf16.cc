#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>

#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"

namespace tandem::backend {

namespace {

using dnnl::memory;

// Tokens (the rows of a, transposed or not) are padded with zeros to a multiple of this, so that varying token counts
// lead to few distinct shapes, and thus to few primitives.
constexpr int64_t kTokenStep = 64;
constexpr size_t kMostPrimitives = 512;

// m, n, k, the three strides, transposed a, transposed b, add
using Shape = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool, bool>;

memory::desc describe(int64_t rows, int64_t cols, int64_t stride, bool transposed, memory::data_type type) {
  return {{rows, cols}, type, transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

// One shape's compiled product, with its own scratch memory. It belongs to one thread.
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

// The factor in f32. `rows` and `cols` are its sizes in memory.
template <class Tag>
Factor<float> widened(const Factor<bf16>& from, int64_t rows, int64_t cols) {
  float* wide = scratch<float, Tag>(rows * cols);
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(from.data + row * from.stride, cols, wide + row * cols);
  }
  return {wide, cols, from.transposed};
}

// The factor padded with rows of zeros to a multiple of kTokenStep. `rows` and `cols` are its sizes in memory.
template <class Tag>
Factor<bf16> filled_up(const Factor<bf16>& from, int64_t rows, int64_t cols) {
  const int64_t all = (rows + kTokenStep - 1) / kTokenStep * kTokenStep;
  bf16* to = scratch<bf16, Tag>(all * cols);
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(from.data + row * from.stride, cols, to + row * cols);
  }
  std::fill_n(to + rows * cols, (all - rows) * cols, bf16());
  return {to, cols, from.transposed};
}

void copy_rows(const Target<float>& to, const float* from, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row) {
    float* out = to.data + row * to.stride;
    const float* in = from + row * cols;
    for (int64_t i = 0; i < cols; ++i) {
      out[i] = to.add ? out[i] + in[i] : in[i];
    }
  }
}

}  // namespace

void multiply(const Target<float>& c, const Factor<bf16>& a, const Factor<bf16>& b, int64_t m, int64_t n, int64_t k) {
  static const bool supported = onednn_uses_avx512();
  if (!supported) {
    const auto wide_a = widened<struct WideA>(a, a.transposed ? k : m, a.transposed ? m : k);
    return multiply(c, wide_a, widened<struct WideB>(b, b.transposed ? n : k, b.transposed ? k : n), m, n, k);
  }
  const int64_t tokens = a.transposed ? k : m;
  const int64_t all = (tokens + kTokenStep - 1) / kTokenStep * kTokenStep;
  if (tokens == all || (a.transposed && b.transposed)) {
    return matmul(c, a, b, m, n, k);
  }
  if (a.transposed) {
    return matmul(c, filled_up<struct FilledA>(a, k, m), filled_up<struct FilledB>(b, k, n), m, n, all);
  }
  float* sums = scratch<float, struct FilledC>(all * n);
  matmul({sums, n}, filled_up<struct FilledA>(a, m, k), b, all, n, k);
  copy_rows(c, sums, m, n);
}

}  // namespace tandem::backend
