// Pieces of work cut by shape, and scratch memory for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/threads.h"

namespace tandem::backend {

// Calls body(begin, end) for consecutive chunks of [0, n); the chunks depend on n and `chunk` only.
template <class Body>
void for_chunks(const Threads& threads, int64_t n, int64_t chunk, const Body& body) {
  threads.parallel_for((n + chunk - 1) / chunk, [&](int64_t i) { body(i * chunk, std::min(n, (i + 1) * chunk)); });
}

// Returns at least n elements, 64-byte aligned (oneDNN is a fifth slower otherwise), that belong to this thread and
// this Tag until its next call. Their contents are undefined. The memory grows in the first steps and then stays.
template <class A, class Tag>
A* scratch(int64_t n) {
  constexpr size_t kAlignment = 64;
  thread_local std::vector<A> memory;
  const size_t needed = static_cast<size_t>(n) + kAlignment / sizeof(A);
  if (memory.size() < needed) {
    memory.resize(needed);
  }
  const size_t past = reinterpret_cast<uintptr_t>(memory.data()) % kAlignment;
  return memory.data() + (kAlignment - past) % kAlignment / sizeof(A);
}

}  // namespace tandem::backend
