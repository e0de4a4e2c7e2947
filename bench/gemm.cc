// The rate of the matrix products of a model: GFLOP/s of linear (fwd), linear_backward_input (dx) and
// linear_backward_weights (dw) on every shape, beside one plain oneDNN call with the same number of threads, and both
// weighted by the FLOPs that a training step spends on each shape.
//
//   bench_gemm [tokens] [threads] [f32|bf16] [base|small|tiny]
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "core/philox.h"

namespace tandem {
namespace {

struct Shape {
  const char* name;
  int64_t in, out;
  int count;  // layers of this shape, each applied to `tokens` rows
};

// 6 + 6 (tiny: 4 + 4) layers: self-attention's q, k, v in one product, its output, cross-attention's q and, for all
// layers at once, k and v, the feed-forward network, the logits.
std::vector<Shape> shapes_of(const std::string& model) {
  const int64_t d = model == "base" ? 512 : model == "small" ? 256 : 128;
  const int64_t f = model == "tiny" ? 256 : 4 * d;
  const int64_t vocabulary = model == "tiny" ? 8000 : 32768;
  const int layers = model == "tiny" ? 4 : 6;
  return {{"q k v", d, 3 * d, 2 * layers}, {"projection", d, d, 4 * layers}, {"cross k v", d, 2 * layers * d, 1},
          {"ffn in", d, f, 2 * layers},    {"ffn out", f, d, 2 * layers},    {"logits", d, vocabulary, 1}};
}

using Work = std::function<void()>;

struct Pair {
  double ours = 1e30, plain = 1e30;
};

double seconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The best times, in turns, so that a noisy machine disturbs both alike.
Pair best_seconds(const Work& ours, const Work& plain) {
  Pair best;
  double spent = 0;
  for (int i = 0; i < 50 && (i < 5 || spent < 1); ++i) {
    const Pair now{seconds(ours), seconds(plain)};
    best = {std::min(best.ours, now.ours), std::min(best.plain, now.plain)};
    spent += now.ours + now.plain;
  }
  return best;
}

// op(a) [m, k] times op(b) [k, n] by one call of oneDNN with its own threads.
Work plain_product(const View& c, const View& a, bool ta, const View& b, bool tb) {
  const int64_t m = c.rows, n = c.cols, k = ta ? a.rows : a.cols;
  if (a.dtype == DType::f32) {
    return [=] {
      dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0F, a.host<float>(), a.stride, b.host<float>(), b.stride,
                 0.0F, c.host<float>(), c.stride);
    };
  }
  using dnnl::memory;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const dnnl::stream stream(engine);
  const auto describe = [](int64_t rows, int64_t cols, const View& view, bool transposed) {
    const auto type = view.dtype == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
    return memory::desc({rows, cols}, type, transposed ? memory::dims{1, view.stride} : memory::dims{view.stride, 1});
  };
  const auto da = describe(m, k, a, ta), db = describe(k, n, b, tb), dc = describe(m, n, c, false);
  const dnnl::matmul product({{da, db, dc}, engine});
  const memory ma(da, engine, a.data), mb(db, engine, b.data), mc(dc, engine, c.data);
  return [=]() mutable {
    product.execute(stream, {{DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, mb}, {DNNL_ARG_DST, mc}});
    dnnl::stream(stream).wait();
  };
}

View random_matrix(std::vector<Buffer>& keep, backend::Backend& backend, DType dtype, int64_t rows, int64_t cols) {
  keep.push_back(backend.allocate(static_cast<size_t>(rows * cols) * 4));
  keep.push_back(backend.allocate(static_cast<size_t>(rows * cols) * size_of(dtype)));
  const View wide = keep[keep.size() - 2].view(DType::f32, rows, cols);
  PhiloxStream random(1, 2, static_cast<uint32_t>(keep.size()));
  std::generate_n(wide.host<float>(), wide.size(), [&] { return uniform(random.next()) - 0.5F; });
  const View view = keep.back().view(dtype, rows, cols);
  backend.copy(view, wide);
  return view;
}

struct Totals {
  double flop = 0, ours = 0, plain = 0;
};

void measure(backend::Backend& backend, DType dtype, int64_t tokens, const Shape& shape, Totals& totals) {
  std::vector<Buffer> keep;
  const View x = random_matrix(keep, backend, dtype, tokens, shape.in);
  const View y = random_matrix(keep, backend, dtype, tokens, shape.out);
  const View w = random_matrix(keep, backend, dtype, shape.out, shape.in);
  const View dw = random_matrix(keep, backend, DType::f32, shape.out, shape.in);
  const double gflop = 2e-9 * static_cast<double>(tokens) * static_cast<double>(shape.in * shape.out);
  const backend::WeightGradient gradient{.dw = dw, .dy = y, .x = x};
  const Pair pairs[] = {best_seconds([&] { backend.run(backend::op::Linear{.y = y, .x = x, .w = w}); },
                                     plain_product(y, x, false, w, true)),
                        best_seconds([&] { backend.run(backend::op::LinearBackwardInput{.dx = x, .dy = y, .w = w}); },
                                     plain_product(x, y, false, w, false)),
                        best_seconds(
                            [&] {
                              backend.run(backend::op::LinearBackwardWeights{.gradients = {&gradient, 1}});
                            },
                            plain_product(dw, y, true, x, false))};
  fmt::print("{:<11} {:>5} x {:<5}", shape.name, shape.in, shape.out);
  for (const Pair& pair : pairs) {
    fmt::print("  {:>5.0f} ({:>5.0f})", gflop / pair.ours, gflop / pair.plain);
    totals.flop += gflop * shape.count;
    totals.ours += pair.ours * shape.count;
    totals.plain += pair.plain * shape.count;
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void run(int64_t tokens, int threads, DType dtype, const std::string& only) {
  const auto backend = backend::make_cpu_backend(threads);
  omp_set_num_threads(threads == 0 ? omp_get_num_procs() : threads);
  for (const char* model : {"base", "small", "tiny"}) {
    if (!only.empty() && only != model) {
      continue;
    }
    fmt::print("transformer-{}, {} tokens, {}, {}: GFLOP/s (one plain oneDNN call)\n{:<24} {:>15} {:>15} {:>15}\n",
               model, tokens, name_of(dtype), backend->description(), "in x out", "fwd", "dx", "dw");
    Totals totals;
    for (const Shape& shape : shapes_of(model)) {
      measure(*backend, dtype, tokens, shape, totals);
    }
    fmt::print("FLOP-weighted: {:.0f} GFLOP/s ({:.0f})\n\n", totals.flop / totals.ours, totals.flop / totals.plain);
  }
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 4000;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 0;
  const bool half = argc > 3 && std::strcmp(argv[3], "bf16") == 0;
  tandem::run(tokens, threads, half ? tandem::DType::bf16 : tandem::DType::f32, argc > 4 ? argv[4] : "");
}
