// The rate of the ops beside the matrix products, at the sizes of a model: time for a token (for an element, in the
// optimizer), bytes moved a second (each operand counted once) and, for attention, FLOP/s.
//
//   bench_ops [threads] [f32|bf16] [width] [sentence length]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "core/philox.h"

namespace tandem {
namespace {

constexpr int64_t kTokens = 512;
constexpr int64_t kVocabulary = 32768;
constexpr int64_t kHeadWidth = 64;

class Bench {
 public:
  Bench(int threads, DType dtype, int64_t width, int64_t length)
      : backend_(backend::make_cpu_backend(threads)), dtype_(dtype), width_(width), length_(length) {}

  void run() {
    fmt::print("{}; {} tokens, width {}, sentences of {}, {}\n", backend_->description(), kTokens, width_, length_,
               name_of(dtype_));
    embedding();
    norms();
    attention();
    loss();
    optimizer();
    decoding();
  }

 private:
  View take(DType dtype, int64_t rows, int64_t cols) {
    buffers_.push_back(backend_->allocate(static_cast<size_t>(rows * cols) * size_of(dtype)));
    const View view = buffers_.back().view(dtype, rows, cols);
    std::vector<float> values(static_cast<size_t>(rows * cols));
    PhiloxStream random(1, 2, static_cast<uint32_t>(buffers_.size()));
    for (float& value : values) {
      value = 2 * uniform(random.next()) - 1;
    }
    backend_->copy(view, host_view(values.data(), rows, cols));
    return view;
  }
  View activations(int64_t cols) { return take(dtype_, kTokens, cols); }
  View masters(int64_t cols) { return take(DType::f32, 1, cols); }
  View integers(std::vector<int32_t> values) {
    const int64_t n = static_cast<int64_t>(values.size());
    buffers_.push_back(backend_->allocate(values.size() * sizeof(int32_t)));
    backend_->upload(buffers_.back().view(DType::i32, 1, n), values.data());
    return buffers_.back().view(DType::i32, 1, n);
  }
  View sequence(int64_t n, int32_t step) {
    std::vector<int32_t> values(static_cast<size_t>(n));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<int32_t>(i) * step;
    }
    return integers(values);
  }
  backend::Dropout dropout() { return {0.1F, 1, Side::source, &state_}; }
  int64_t bytes(int64_t elements) const { return elements * static_cast<int64_t>(size_of(dtype_)); }

  // The best of many short runs.
  void report(const char* name, int64_t items, int64_t moved, double flops, const std::function<void()>& work) {
    double best = 1e30, spent = 0;
    for (int i = 0; i < 500 && (i < 20 || spent < 0.5); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      work();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      best = std::min(best, seconds);
      spent += seconds;
    }
    fmt::print("{:24} {:8.3f} ms {:9.2f} ns each {:7.2f} GB/s", name, best * 1e3,
               best / static_cast<double>(items) * 1e9, static_cast<double>(moved) / best / 1e9);
    fmt::print("{}\n", flops > 0 ? fmt::format(" {:7.2f} GFLOP/s", flops / best / 1e9) : "");
    std::fflush(stdout);
  }

  void embedding() {
    const View table = take(dtype_, 1000, width_), positions = take(DType::f32, kTokens, width_);
    const View dtable = take(DType::f32, 1000, width_), x = activations(width_);
    const View tokens = sequence(kTokens, 1), starts = sequence(kTokens + 1, 1);
    report("embed", kTokens, 2 * bytes(x.size()) + 4 * x.size(), 0, [&] {
      backend_->run(backend::op::Embed{.x = x,
                                       .tokens = tokens,
                                       .position = tokens,
                                       .table = table,
                                       .positions = positions,
                                       .scale = 2,
                                       .dropout = dropout()});
    });
    report("embed_backward", kTokens, bytes(x.size()) + 8 * x.size(), 0, [&] {
      backend_->run(backend::op::EmbedBackward{
          .dtable = dtable, .dx = x, .order = {tokens, tokens, starts}, .scale = 2, .dropout = dropout()});
    });
  }

  void norms() {
    const View residual = activations(width_), branch = activations(width_), sum = activations(width_);
    const View normed = activations(width_), statistics = take(DType::f32, kTokens, 2);
    const View gamma = masters(width_), beta = masters(width_), dgamma = masters(width_), dbeta = masters(width_);
    for (const backend::Dropout& drop : {backend::Dropout{}, dropout()}) {
      report(drop.rate > 0 ? "residual_norm, dropout" : "residual_norm", kTokens, 4 * bytes(sum.size()), 0, [&] {
        backend_->run(backend::op::ResidualNorm{.sum = sum,
                                                .normed = normed,
                                                .statistics = statistics,
                                                .residual = residual,
                                                .branch = branch,
                                                .gamma = gamma,
                                                .beta = beta,
                                                .dropout = drop});
      });
      report("  backward", kTokens, 5 * bytes(sum.size()), 0, [&] {
        backend_->run(backend::op::ResidualNormBackward{.dresidual = residual,
                                                        .dbranch = branch,
                                                        .dgamma = dgamma,
                                                        .dbeta = dbeta,
                                                        .dnormed = normed,
                                                        .dsum = residual,
                                                        .sum = sum,
                                                        .statistics = statistics,
                                                        .gamma = gamma,
                                                        .dropout = drop});
      });
    }
  }

  void attention() {
    const View qkv = activations(3 * width_), dqkv = activations(3 * width_);
    const View out = activations(width_), dout = activations(width_);
    const View log_sums = take(DType::f32, width_ / kHeadWidth, kTokens);
    backend::AttentionShape shape;
    shape.heads = static_cast<int>(width_ / kHeadWidth);
    shape.query_starts = shape.key_starts = sequence(kTokens / length_ + 1, static_cast<int32_t>(length_));
    if (const int64_t size = backend_->attention_plan_size(shape, kTokens); size > 0) {
      const View plan = take(DType::i32, 1, size);
      backend_->run(backend::op::PlanAttention{.plan = plan,
                                               .query_starts = shape.query_starts,
                                               .key_starts = shape.key_starts,
                                               .query_rows = kTokens,
                                               .key_rows = kTokens});
      shape.plan = plan;
    }
    const auto part = [&](const View& view, int64_t i) { return view.slice_cols(i * width_, width_); };
    const double flops = 4.0 * static_cast<double>(kTokens * length_ * width_);
    for (const bool causal : {false, true}) {
      for (const backend::Dropout& drop : {backend::Dropout{}, dropout()}) {
        shape.causal = causal;
        shape.dropout = drop;
        report(fmt::format("attention{}{}", causal ? ", causal" : "", drop.rate > 0 ? ", dropout" : "").c_str(),
               kTokens, 4 * bytes(out.size()), flops, [&] {
                 backend_->run(backend::op::Attention{.out = out,
                                                      .log_sums = log_sums,
                                                      .q = part(qkv, 0),
                                                      .k = part(qkv, 1),
                                                      .v = part(qkv, 2),
                                                      .shape = shape});
               });
        report("  backward", kTokens, 7 * bytes(out.size()), 2.5 * flops, [&] {
          backend_->run(backend::op::AttentionBackward{.dq = part(dqkv, 0),
                                                       .dk = part(dqkv, 1),
                                                       .dv = part(dqkv, 2),
                                                       .dout = dout,
                                                       .out = out,
                                                       .log_sums = log_sums,
                                                       .q = part(qkv, 0),
                                                       .k = part(qkv, 1),
                                                       .v = part(qkv, 2),
                                                       .shape = shape});
        });
      }
    }
  }

  void loss() {
    const View logits = take(dtype_, 64, kVocabulary), labels = sequence(64, 3);
    backend::LossTotals totals;
    report("cross_entropy", 64, bytes(logits.size()), 0, [&] {
      backend_->run(
          backend::op::CrossEntropy{.totals = &totals, .logits = logits, .labels = labels, .smoothing = 0.1F});
    });
    report("  with gradient", 64, 2 * bytes(logits.size()), 0, [&] {
      backend_->run(backend::op::CrossEntropy{
          .totals = &totals, .logits = logits, .labels = labels, .smoothing = 0.1F, .state = &state_});
    });
  }

  void optimizer() {
    constexpr int64_t kSize = 8 << 20;
    const View w = masters(kSize), m = masters(kSize), v = masters(kSize), g = masters(kSize);
    const View compute = dtype_ == DType::bf16 ? take(DType::bf16, 1, kSize) : View{};
    backend_->fill_zero(v);
    state_.learning_rate = 1e-6F;
    backend::UpdateState norm{.average_decay = 0.9F};
    report("gradient_norm", kSize, 4 * kSize, 0, [&] {
      backend_->run(backend::op::GradientNorm{.update = &norm, .gradients = g, .settings = {.max_norm = 1}});
    });
    report("adam", kSize, 28 * kSize, 0, [&] {
      backend_->run(backend::op::Adam{.masters = w,
                                      .m = m,
                                      .v = v,
                                      .compute = compute,
                                      .gradients = g,
                                      .settings = {},
                                      .state = &state_,
                                      .update = &norm});
    });
    report("moving_average", kSize, 12 * kSize, 0,
           [&] { backend_->run(backend::op::MovingAverage{.average = m, .masters = w, .update = &norm}); });
  }

  void decoding() {
    const int64_t rows = 64;
    const View logits = take(dtype_, rows, kVocabulary), q = take(dtype_, rows, width_),
               out = take(dtype_, rows, width_);
    const View values = take(DType::f32, rows, 8), ids = integers(std::vector<int32_t>(rows * 8)).reshape(rows, 8);
    const View keys = take(dtype_, rows * length_, width_), cached = take(dtype_, rows * length_, width_);
    const backend::CachedKeys cache{keys,
                                    cached,
                                    integers(std::vector<int32_t>(rows, static_cast<int32_t>(length_))),
                                    sequence(rows, static_cast<int32_t>(length_)),
                                    {}};
    report("top_log_probabilities", rows, bytes(logits.size()), 0,
           [&] { backend_->run(backend::op::TopLogProbabilities{.values = values, .ids = ids, .logits = logits}); });
    report("attention_cached", rows, 2 * bytes(keys.size()), 4.0 * static_cast<double>(keys.size()), [&] {
      backend_->run(backend::op::AttentionCached{
          .out = out, .q = q, .cache = cache, .heads = static_cast<int>(width_ / kHeadWidth)});
    });
  }

  std::unique_ptr<backend::Backend> backend_;
  DType dtype_;
  int64_t width_, length_;
  std::vector<Buffer> buffers_;
  backend::StepState state_;
};

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const bool bf16 = argc > 2 && std::strcmp(argv[2], "bf16") == 0;
  tandem::Bench(number(1, 1), bf16 ? tandem::DType::bf16 : tandem::DType::f32, number(3, 512), number(4, 32)).run();
}
