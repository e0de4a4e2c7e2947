#include "train/product_rate.h"

#include <chrono>
#include <vector>

#include "core/philox.h"
#include "tensor/arena.h"

namespace tandem {

double measure_product_rate(Backend& backend, DType compute) {
  const bool gpu = backend.fixed_shape();
  const int64_t n = gpu ? 8192 : 1024;
  const int repeats = gpu ? 20 : 3;
  Arena arena([&backend](size_t bytes) { return backend.allocate(bytes); });
  const View wide = arena.take(DType::f32, n, n);
  const View a = arena.take(compute, n, n), b = arena.take(compute, n, n), c = arena.take(compute, n, n);
  std::vector<float> numbers(static_cast<size_t>(n * n));
  uint32_t seed = 0;
  for (const View& operand : {a, b}) {
    PhiloxStream random(++seed, 0);
    for (float& number : numbers) {
      number = uniform(random.next()) - 0.5F;
    }
    backend.upload(wide, numbers.data());
    backend.copy(operand, wide);
    backend.wait();
  }
  backend.linear(c, a, b, {});
  backend.wait();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) {
    backend.linear(c, a, b, {});
  }
  backend.wait();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return 2.0 * static_cast<double>(n * n) * static_cast<double>(n) * repeats / seconds;
}

}  // namespace tandem
