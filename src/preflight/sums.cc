#include "preflight/sums.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/error.h"
#include "core/stopwatch.h"
#include "preflight/rate.h"

namespace tandem::preflight {

namespace {

constexpr int64_t kSmall = 16;  // elements: the size of a message without bytes worth speaking of
constexpr size_t kSmallMessages = 8;
constexpr double kSmallSeconds = 0.3;

// Memory for gradients, and how they are added up.
struct Gradients {
  View values, sums;

  Gradients slice(int64_t begin, int64_t count) const {
    return {values.slice_cols(begin, count), sums.slice_cols(begin, count)};
  }
  dist::Handle start(dist::Communicator& communicator) const {
    return values.dtype == DType::f64 ? communicator.start_rounded_all_reduce(sums, values)
                                      : communicator.start_all_reduce(values);
  }
};

// All of these messages, one after the other, each with memory of its own, as gradients have: so several can be under
// way.
double seconds_of(dist::Communicator& sums, dist::Communicator& control, backend::Backend& backend,
                  const Gradients& buffer, const std::vector<int64_t>& elements, double seconds) {
  return 1 / measure_rate(control, seconds, 1, [&](int64_t times) {
           std::vector<dist::Handle> handles;
           for (int64_t i = 0; i < times; ++i) {
             int64_t begin = 0;
             for (const int64_t count : elements) {
               handles.push_back(buffer.slice(begin, count).start(sums));
               begin += count;
             }
           }
           for (dist::Handle& handle : handles) {
             handle.wait();
           }
           backend.wait();
         });
}

}  // namespace

SumCost measure_sums(dist::Communicator& sums, dist::Communicator& control, backend::Backend& backend,
                     const std::vector<int64_t>& elements, DType wire, double seconds) {
  require(!elements.empty(), "a step that sends nothing");
  const int64_t total = std::accumulate(elements.begin(), elements.end(), int64_t{0});
  const std::vector<int64_t> few(kSmallMessages, kSmall);
  const int64_t most = std::max(total, kSmall * std::ssize(few));
  const Buffer memory = backend.allocate(static_cast<size_t>(most) * size_of(wire));
  const Buffer rounded = backend.allocate(wire == DType::f64 ? static_cast<size_t>(most) * sizeof(float) : 0);
  const View values = memory.view(wire, 1, most);
  const Gradients buffer{values, wire == DType::f64 ? rounded.view(DType::f32, 1, most) : values};
  backend.fill_zero(values);
  backend.wait();
  const double small = seconds_of(sums, control, backend, buffer, few, kSmallSeconds) / kSmallMessages;
  const double all = seconds_of(sums, control, backend, buffer, elements, seconds);
  const auto messages = static_cast<double>(elements.size());
  const double bytes = static_cast<double>(total) * wire_bytes(wire);
  SumCost cost;
  cost.message_seconds = std::min(small, all / 2 / messages);  // a busy machine takes long for a few bytes, too
  cost.bytes_per_second = bytes / (all - messages * cost.message_seconds);
  return cost;
}

ConstantSums::ConstantSums(dist::Communicator& sums, int64_t elements, DType wire)
    : sums_(sums), elements_(elements), wire_(wire), thread_([this] {
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
    std::vector<float> rounded;
    double wanting = 0;
    dist::Handle values, counted;
  };
  std::array<Slot, 2> slots;
  const auto start = [this](Slot& slot) {
    slot.memory.resize(static_cast<size_t>(elements_));
    slot.wanting = finish_ ? 1 : 0;
    slot.rounded.resize(slot.memory.size());
    slot.values =
        Gradients{make_view(slot.memory.data(), wire_, 1, elements_), host_view(slot.rounded.data(), 1, elements_)}
            .start(sums_);
    slot.counted = sums_.start_all_reduce(host_view(&slot.wanting, 1, 1));
  };
  const Stopwatch watch;
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
  seconds_ = watch.seconds();
}

double ConstantSums::messages_per_second() const {
  require(error_.empty(), "{}", error_);
  return static_cast<double>(messages_) / seconds_;
}

}  // namespace tandem::preflight
