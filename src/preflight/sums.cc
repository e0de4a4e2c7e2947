#include "preflight/sums.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "core/error.h"
#include "preflight/rate.h"

namespace tandem {

namespace {

constexpr int64_t kSmall = 16;  // elements: the size of a message without bytes worth speaking of
constexpr double kSmallSeconds = 0.3;

double seconds_a_message(Communicator& sums, Communicator& control, Backend& backend, const View& buffer,
                         double seconds) {
  return 1 / measure_rate(control, seconds, 1, [&](int64_t count) {
           std::vector<Handle> handles;
           for (int64_t i = 0; i < count; ++i) {
             handles.push_back(sums.start_all_reduce(buffer));
           }
           for (Handle& handle : handles) {
             handle.wait();
           }
           backend.wait();
         });
}

}  // namespace

SumCost measure_sums(Communicator& sums, Communicator& control, Backend& backend, int64_t elements, DType type,
                     double seconds) {
  const Buffer memory = backend.allocate(static_cast<size_t>(elements) * size_of(type));
  const View buffer = memory.view(type, 1, elements);
  backend.fill_zero(buffer);
  backend.wait();
  SumCost cost;
  const int64_t small = std::min(kSmall, elements);
  const double least = seconds_a_message(sums, control, backend, buffer.slice_cols(0, small), kSmallSeconds);
  const double large = seconds_a_message(sums, control, backend, buffer, seconds);
  cost.message_seconds = std::min(least, large / 2);  // a busy machine may take as long for a few bytes as for many
  const auto bytes = static_cast<double>(elements) * static_cast<double>(size_of(type));
  cost.bytes_per_second = bytes / (large - cost.message_seconds);
  return cost;
}

ConstantSums::ConstantSums(Communicator& sums, int64_t elements, DType type)
    : sums_(sums), elements_(elements), type_(type), thread_([this] {
        try {
          run();
        } catch (const std::exception& error) {
          error_ = error.what();
        }
        ended_ = true;
      }) {}

ConstantSums::~ConstantSums() {
  finish_ = true;
  thread_.join();
}

// Two at a time, so that the queue is never empty. A number beside each buffer counts the ranks that want to end: all
// of them see the same sum.
void ConstantSums::run() {
  struct Slot {
    std::vector<double> memory;
    double wanting = 0;
    Handle values, counted;
  };
  std::array<Slot, 2> slots;
  const auto start = [this](Slot& slot) {
    slot.memory.resize(static_cast<size_t>(elements_));
    slot.wanting = finish_ ? 1 : 0;
    slot.values = sums_.start_all_reduce(make_view(slot.memory.data(), type_, 1, elements_));
    slot.counted = sums_.start_all_reduce(host_view(&slot.wanting, 1, 1));
  };
  const auto begin = std::chrono::steady_clock::now();
  start(slots[0]);
  for (size_t next = 1;; next ^= 1) {
    start(slots[next]);
    Slot& oldest = slots[next ^ 1];
    oldest.values.wait();
    oldest.counted.wait();
    ++messages_;
    if (oldest.wanting == sums_.size()) {
      slots[next].values.wait();
      slots[next].counted.wait();
      ++messages_;
      break;
    }
  }
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double ConstantSums::messages_per_second() const {
  require(error_.empty(), "{}", error_);
  return static_cast<double>(messages_) / seconds_;
}

}  // namespace tandem
