#include "dist/rank_sum.h"

#include <algorithm>
#include <array>

namespace tandem::dist {
namespace {

// T in memory, A for the additions. Works block by block, so that the running sums stay in the first-level cache.
template <class T, class A>
void sum_blocks(T* out, std::span<const void* const> parts, int64_t count) {
  constexpr int64_t kBlock = 1024;
  std::array<A, kBlock> sums{};
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t length = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(parts[0]) + begin;
    for (int64_t i = 0; i < length; ++i) {
      sums[i] = static_cast<A>(first[i]);
    }
    for (const void* part : parts.subspan(1)) {
      const T* values = static_cast<const T*>(part) + begin;
      for (int64_t i = 0; i < length; ++i) {
        sums[i] += static_cast<A>(values[i]);
      }
    }
    for (int64_t i = 0; i < length; ++i) {
      out[begin + i] = static_cast<T>(sums[i]);
    }
  }
}

}  // namespace

void sum_in_order(void* out, std::span<const void* const> parts, int64_t count, DType type) {
  switch (type) {
    case DType::f32:
      return sum_blocks<float, float>(static_cast<float*>(out), parts, count);
    case DType::bf16:
      return sum_blocks<bf16, float>(static_cast<bf16*>(out), parts, count);
    case DType::f64:
      return sum_blocks<double, double>(static_cast<double*>(out), parts, count);
    case DType::i32:
      return sum_blocks<int32_t, uint32_t>(static_cast<int32_t*>(out), parts, count);
  }
}

}  // namespace tandem::dist
