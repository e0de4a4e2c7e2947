// The training step against the matrix products it is made of.
//
//   bench_train_step MODEL f32|bf16 TOKENS STEPS LENGTHS [THREADS]
//
// Runs the trainer's own steps (forward, loss, backward, gradient norm, Adam; dropout 0.1) of a preset on random ids
// with sentence lengths of WMT's shape, then every matrix product of that step alone, and prints the step's FLOP/s
// (real tokens, counted as in the literature: 3 x forward) as a share of the products' own rate. A product's rate is
// the better of our op and one oneDNN call that threads by itself. The lengths are written to the file LENGTHS, one
// "source target" a line and an empty line after each step, for bench/torch_step.py.
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "core/philox.h"
#include "data/corpus.h"
#include "observe/probes/host_probes.h"
#include "tensor/arena.h"
#include "train/step_bench.h"

using namespace tandem;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double normal(PhiloxStream& random) {
  const double u = (random.next() + 1.0) * 0x1p-32, v = random.next() * 0x1p-32;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
}

std::vector<int32_t> random_ids(PhiloxStream& random, int64_t count, int64_t vocabulary) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(4 + random.below(static_cast<uint64_t>(vocabulary - 4)));
  }
  return ids;
}

// Pairs of at least `tokens` tokens a side in all.
data::Corpus random_corpus(const std::string& path, int64_t tokens, int64_t vocabulary) {
  PhiloxStream random(1, 1);
  data::CorpusWriter writer(path, static_cast<int32_t>(vocabulary), static_cast<int32_t>(vocabulary));
  for (int64_t source = 0, target = 0; std::min(source, target) < tokens;) {
    const int64_t s = static_cast<int64_t>(std::exp(3.2 + 0.55 * normal(random))) + 1;
    const int64_t t =
        std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(s) * std::exp(0.05 + 0.18 * normal(random))) + 1);
    if (s <= 100 && t <= 100) {
      writer.add(random_ids(random, s, vocabulary), random_ids(random, t, vocabulary));
      source += s + 1;
      target += t + 1;
    }
  }
  writer.finish();
  data::Corpus corpus = data::Corpus::open(path);
  std::filesystem::remove(path);  // it stays mapped
  return corpus;
}

// A step ends where the next pair would exceed its tokens on a side, as the batcher's do.
void write_lengths(const std::string& path, const std::vector<std::string>& pairs, int64_t tokens) {
  std::ofstream file(path);
  int64_t source = 0, target = 0;
  for (const std::string& pair : pairs) {
    int64_t s = 0, t = 0;
    std::sscanf(pair.c_str(), "%ld %ld", &s, &t);
    if (std::max(source + s, target + t) > tokens) {
      file << '\n';
      source = target = 0;
    }
    source += s;
    target += t;
    file << pair << '\n';
  }
  file << '\n';
}

struct Product {
  const char* name;
  int64_t rows, in, out;
  double count;  // how often a step has it, forward
};

std::vector<Product> products(const model::ModelConfig& c, int64_t S, int64_t T) {
  const double e = c.encoder_layers, d = c.decoder_layers;
  const int64_t D = c.width, F = c.feed_forward;
  return {{"source qkv", S, D, 3 * D, e},
          {"source out", S, D, D, e},
          {"source ffn in", S, D, F, e},
          {"source ffn out", S, F, D, e},
          {"target qkv", T, D, 3 * D, d},
          {"target out, cross q, cross out", T, D, D, 3 * d},
          {"target ffn in", T, D, F, d},
          {"target ffn out", T, F, D, d},
          {"cross kv", S, D, 2 * D * c.decoder_layers, 1},
          {"logits", T, D, c.target_vocabulary, 1}};
}

// Best of three timings of `call`, each long enough to mean something.
template <class Call>
double seconds_of(const Call& call) {
  call();
  double best = 1e30;
  for (int repeat = 0; repeat < 3; ++repeat) {
    int calls = 0;
    const double begin = now();
    do {
      call();
      ++calls;
    } while (now() - begin < 0.15);
    best = std::min(best, (now() - begin) / calls);
  }
  return best;
}

// Seconds of the step's matrix products alone (forward, input gradient, weight gradient).
double product_seconds(backend::Backend& backend, const model::ModelConfig& config, DType compute, int64_t S,
                       int64_t T) {
  double total = 0;
  for (const Product& p : products(config, S, T)) {
    // Logits are worked through in pieces that stay near the caches, as the model does.
    const int64_t rows = std::min<int64_t>(p.rows, p.out > 8192 ? 1024 : p.rows);
    const double scale = static_cast<double>(p.rows) / static_cast<double>(rows) * p.count;
    Arena arena([&](size_t bytes) { return backend.allocate(bytes); });
    const View x = arena.take(compute, rows, p.in), y = arena.take(compute, rows, p.out);
    const View w = arena.take(compute, p.out, p.in), dw = arena.take(DType::f32, p.out, p.in);
    for (const View& view : {x, y, w, dw}) {
      backend.fill_zero(view);
    }
    double forward = seconds_of([&] { backend.run(backend::op::Linear{.y = y, .x = x, .w = w}); });
    double input = seconds_of([&] { backend.run(backend::op::LinearBackwardInput{.dx = x, .dy = y, .w = w}); });
    const backend::WeightGradient gradient{.dw = dw, .dy = y, .x = x};
    double weight = seconds_of([&] { backend.run(backend::op::LinearBackwardWeights{.gradients = {&gradient, 1}}); });
    if (compute == DType::f32) {
      const auto gemm = [](char ta, char tb, int64_t m, int64_t n, int64_t k, const View& a, const View& b, float beta,
                           const View& c) {
        return seconds_of([&] {
          dnnl_sgemm(ta, tb, m, n, k, 1.0F, a.host<float>(), a.stride, b.host<float>(), b.stride, beta, c.host<float>(),
                     c.stride);
        });
      };
      forward = std::min(forward, gemm('N', 'T', rows, p.out, p.in, x, w, 0, y));
      input = std::min(input, gemm('N', 'N', rows, p.in, p.out, y, w, 0, x));
      weight = std::min(weight, gemm('T', 'N', p.out, p.in, rows, y, x, 1, dw));
    }
    const double flops = 2.0 * static_cast<double>(rows * p.in * p.out) / 1e9;
    std::printf("  %-32s %6.0f %6.0f %6.0f GFLOP/s (forward, input, weight gradient)\n", p.name, flops / forward,
                flops / input, flops / weight);
    total += scale * (forward + input + weight);
  }
  return total;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: bench_train_step tiny|small|base|big f32|bf16 TOKENS STEPS LENGTHS [THREADS]\n");
    return 2;
  }
  train::TrainConfig config;
  config.model = model::preset(argv[1]);
  config.model.source_vocabulary = config.model.target_vocabulary = 32768;
  config.model.dropout = config.model.attention_dropout = config.model.activation_dropout = 0.1F;
  const DType compute = std::string(argv[2]) == "bf16" ? DType::bf16 : DType::f32;
  config.precision = compute == DType::bf16 ? Precision::bf16 : Precision::f32;
  config.batch.tokens = std::atoll(argv[3]);
  config.batch.max_length = config.model.max_length;
  config.device = "cpu";
  config.threads = argc > 6 ? std::atoi(argv[6]) : 0;
  train::StepBenchOptions options;
  options.warm_up = 1;
  options.steps = std::atoi(argv[4]);
  options.profile = false;
  const data::Corpus corpus = random_corpus(std::string(argv[5]) + ".corpus", (options.steps + 2) * config.batch.tokens,
                                            config.model.target_vocabulary);
  const train::StepBench step = train::measure_step(corpus, config, options);
  write_lengths(argv[5], step.lengths, config.batch.tokens);
  const double rate = step.flops / step.seconds / 1e9;
  std::printf("%s, transformer-%s, %s\n", step.device.c_str(), argv[1], argv[2]);
  std::printf(
      "step: %.1f ms, %.0f source + %.0f target tokens, %.0f target tokens/s, %.1f GFLOP/s, peak memory %.2f GB\n",
      step.seconds * 1e3, step.source_tokens, step.target_tokens, step.target_tokens / step.seconds, rate,
      static_cast<double>(observe::peak_memory()) / 1e9);
  const auto S = static_cast<int64_t>(step.source_tokens), T = static_cast<int64_t>(step.target_tokens);
  const auto backend = backend::make_cpu_backend(config.threads);
  const double products_alone = product_seconds(*backend, config.model, compute, S, T);
  double product_flops = 0;
  for (const Product& p : products(config.model, S, T)) {
    product_flops += 6.0 * static_cast<double>(p.rows * p.in * p.out) * p.count;
  }
  const double gemm_rate = product_flops / products_alone / 1e9;
  std::printf("matrix products alone: %.1f ms, %.1f GFLOP/s; the step reaches %.1f %% of that rate\n",
              products_alone * 1e3, gemm_rate, 100 * rate / gemm_rate);
  return 0;
}
