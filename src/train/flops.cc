#include "train/flops.h"

#include <vector>

#include "core/philox.h"
#include "core/stopwatch.h"
#include "tensor/arena.h"

namespace tandem::train {

namespace {

bool is_gpu(const backend::Backend& backend) { return backend.stream().handle != nullptr; }

// Fills `to` (contiguous f32 in the backend's memory) with random numbers in [-0.5, 0.5).
void fill_random(backend::Backend& backend, const View& to, uint32_t seed) {
  PhiloxStream random(seed, 0);
  std::vector<float> numbers(static_cast<size_t>(to.size()));
  for (float& number : numbers) {
    number = uniform(random.next()) - 0.5F;
  }
  backend.upload(to, numbers.data());
  backend.wait();
}

// Side of the square matrices to measure with: large, but within half of the free memory. element_bytes: bytes per
// element, summed over all of them.
int64_t measured_size(const backend::Backend& backend, int64_t element_bytes) {
  int64_t n = is_gpu(backend) ? 8192 : 1024;
  while (n > 1024 && static_cast<size_t>(element_bytes * n * n) > backend.memory_sizes().free / 2) {
    n /= 2;
  }
  return n;
}

// Seconds per call of `op`, after a first call that does not count.
template <class Op>
double seconds_of(backend::Backend& backend, int repeats, const Op& op) {
  op();
  backend.wait();
  const Stopwatch watch;
  for (int i = 0; i < repeats; ++i) {
    op();
  }
  backend.wait();
  return watch.seconds() / repeats;
}

}  // namespace

int64_t tokens_of(const data::TrainStep& step) {
  size_t tokens = 0;
  for (const data::HostBatch& micro_batch : step.micro_batches) {
    tokens += micro_batch.source.tokens.size() + micro_batch.target.tokens.size();
  }
  return static_cast<int64_t>(tokens);
}

double step_flops(const model::ModelConfig& model, const data::TrainStep& step) {
  const double d = static_cast<double>(model.width), f = static_cast<double>(model.feed_forward);
  const double encoder = model.encoder_layers, decoder = model.decoder_layers;
  double forward = 0;
  for (const data::HostBatch& micro_batch : step.micro_batches) {
    const auto S = static_cast<double>(micro_batch.source.tokens.size()),
               T = static_cast<double>(micro_batch.target.tokens.size());
    forward += S * encoder * (8 * d * d + 4 * d * f) + T * decoder * (12 * d * d + 4 * d * f) +
               S * decoder * 4 * d * d + 2 * T * d * static_cast<double>(model.target_vocabulary);
    for (size_t i = 0; i + 1 < micro_batch.source.starts.size(); ++i) {
      const double s = micro_batch.source.starts[i + 1] - micro_batch.source.starts[i];
      const double t = micro_batch.target.starts[i + 1] - micro_batch.target.starts[i];
      forward += encoder * 4 * s * s * d + decoder * (2 * t * t + 4 * s * t) * d;
    }
  }
  return 3 * forward;
}

double measure_product_rate(backend::Backend& backend, DType compute, int repeats) {
  const int64_t n = measured_size(backend, 12);  // while it grows, the arena holds three f32 matrices
  Arena arena([&backend](size_t bytes) { return backend.allocate(bytes); });
  const View wide = arena.take(DType::f32, n, n);
  const View a = arena.take(compute, n, n), b = arena.take(compute, n, n), c = arena.take(compute, n, n);
  fill_random(backend, wide, 1);
  backend.copy(a, wide);
  fill_random(backend, wide, 2);
  backend.copy(b, wide);
  const double seconds = seconds_of(backend,
                                    repeats > 0       ? repeats
                                    : is_gpu(backend) ? 20
                                                      : 3,
                                    [&] { backend.run(backend::op::Linear{.y = c, .x = a, .w = b}); });
  return 2.0 * static_cast<double>(n * n) * static_cast<double>(n) / seconds;
}

double measure_copy_rate(backend::Backend& backend, int repeats) {
  const int64_t n = measured_size(backend, 8);
  Arena arena([&backend](size_t bytes) { return backend.allocate(bytes); });
  const View from = arena.take(DType::f32, n, n), to = arena.take(DType::f32, n, n);
  fill_random(backend, from, 1);
  return 8.0 * static_cast<double>(n * n) / seconds_of(backend, repeats, [&] { backend.copy(to, from); });
}

}  // namespace tandem::train
