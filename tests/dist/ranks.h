// Ranks as threads of this process or as processes, and their expected results.
#pragma once

#include <gloo/rendezvous/hash_store.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "compare.h"
#include "dist/communicator.h"

namespace tandem::testing {

inline const std::chrono::milliseconds kTimeout{20000};

// Runs body(communicator) on `size` threads and throws the first exception again.
inline void with_ranks(int size, const std::function<void(dist::Communicator&)>& body,
                       std::chrono::milliseconds timeout = kTimeout) {
  gloo::rendezvous::HashStore store;
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(*dist::make_gloo_communicator(store, rank, size, "127.0.0.1", timeout, "secret"));
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

template <class T>
View view_of(std::vector<T>& values) {
  return host_view(values.data(), 1, static_cast<int64_t>(values.size()));
}

// A rank's values: different on every rank, and of magnitudes that make the order of additions matter.
template <class T>
std::vector<T> values_of(int rank, int64_t count) {
  std::vector<float> random(count);
  fill_random(std::span(random), 100 + rank);
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) {
    const float scale = (rank + i) % 3 == 0 ? 1000.0F : 1.0F;
    values[i] = std::is_same_v<T, int32_t> ? T(random[i] * 1000000) : T(random[i] * scale);
  }
  return values;
}

// rank 0 + rank 1 + ..., in f32 for bf16.
template <class T>
std::vector<T> sum_of(int size, int64_t count) {
  using A = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
  std::vector<A> sums(count);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<T> values = values_of<T>(rank, count);
    for (int64_t i = 0; i < count; ++i) {
      sums[i] = rank == 0 ? A(values[i]) : sums[i] + A(values[i]);
    }
  }
  std::vector<T> rounded(count);
  for (int64_t i = 0; i < count; ++i) {
    rounded[i] = T(sums[i]);
  }
  return rounded;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace tandem::testing
