#include "train/product_rate.h"

#include <vector>

#include "core/philox.h"
#include "core/stopwatch.h"
#include "tensor/arena.h"

namespace tandem::train {

void fill_random(backend::Backend& backend, const View& to, uint32_t seed) {
  PhiloxStream random(seed, 0);
  std::vector<float> numbers(static_cast<size_t>(to.size()));
  for (float& number : numbers) {
    number = uniform(random.next()) - 0.5F;
  }
  backend.upload(to, numbers.data());
  backend.wait();
}

int64_t measured_size(const backend::Backend& backend, int64_t element_bytes) {
  if (!backend.traits().replays) {
    return 1024;
  }
  int64_t n = 8192;
  while (n > 1024 && static_cast<size_t>(element_bytes * n * n) > backend.memory_sizes().free / 2) {
    n /= 2;
  }
  return n;
}

double measure_product_rate(backend::Backend& backend, DType compute, int repeats) {
  const bool gpu = backend.traits().replays;
  const int64_t n = measured_size(backend, 12);  // as it grows, the arena holds three matrices of f32
  repeats = repeats > 0 ? repeats : gpu ? 20 : 3;
  Arena arena([&backend](size_t bytes) { return backend.allocate(bytes); });
  const View wide = arena.take(DType::f32, n, n);
  const View a = arena.take(compute, n, n), b = arena.take(compute, n, n), c = arena.take(compute, n, n);
  fill_random(backend, wide, 1);
  backend.copy(a, wide);
  fill_random(backend, wide, 2);
  backend.copy(b, wide);
  backend.run(backend::op::Linear{.y = c, .x = a, .w = b});
  backend.wait();
  const Stopwatch watch;
  for (int i = 0; i < repeats; ++i) {
    backend.run(backend::op::Linear{.y = c, .x = a, .w = b});
  }
  backend.wait();
  const double seconds = watch.seconds();
  return 2.0 * static_cast<double>(n * n) * static_cast<double>(n) * repeats / seconds;
}

}  // namespace tandem::train
