#include "preflight/network.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/stopwatch.h"
#include "observe/metrics.h"

namespace tandem::preflight {

namespace {

constexpr int64_t kPiece = int64_t{1} << 22;  // elements of one message at most
constexpr int kExchanges = 30;

// Calls work(amount) with growing amounts, from `amount` on, until a call takes about `seconds`; returns amount /
// seconds of that call by rank 0's clock, the same on all ranks. work returns when this rank's part is done.
template <class Work>
double measure_rate(dist::Communicator& control, double seconds, int64_t amount, const Work& work) {
  constexpr double kEnough = 0.5;  // share of `seconds`
  constexpr double kMostGrowth = 8;
  for (;;) {
    control.barrier();
    const Stopwatch watch;
    work(amount);
    control.barrier();
    double taken = watch.seconds();
    control.broadcast(host_view(&taken, 1, 1), 0);
    if (taken >= kEnough * seconds) {
      return static_cast<double>(amount) / taken;
    }
    const double growth = std::clamp(seconds / std::max(taken, 1e-6), 1.5, kMostGrowth);
    amount = static_cast<int64_t>(static_cast<double>(amount) * growth) + 1;
  }
}

void wait_for(std::vector<dist::Handle>& handles) {
  for (dist::Handle& handle : handles) {
    handle.wait();
  }
}

// Bytes per second that rank `root` of the pair sends to the other.
double one_way(dist::Communicator& pair, int root, double seconds) {
  std::vector<float> data(kPiece);
  return measure_rate(
             pair, seconds, 16 << 10,
             [&](int64_t elements) {
               std::vector<dist::Handle> handles;
               for (int64_t left = elements; left > 0; left -= kPiece) {
                 handles.push_back(pair.start_broadcast(host_view(data.data(), 1, std::min(left, kPiece)), root));
               }
               wait_for(handles);
             }) *
         sizeof(float);
}

// Exchanges times repeatedly; the quickest exchange gives the best estimate of the clocks' offset.
void compare_clocks(dist::Communicator& pair, Link& link) {
  link.round_trip = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kExchanges; ++i) {
    double asked = observe::unix_time(), there = 0;
    const double begin = asked;
    pair.broadcast(host_view(&asked, 1, 1), 0);
    there = observe::unix_time();
    pair.broadcast(host_view(&there, 1, 1), 1);
    const double end = observe::unix_time();
    if (end - begin < link.round_trip) {
      link.round_trip = end - begin;
      link.clock_offset = there - (begin + end) / 2;
      link.clock_error = (end - begin) / 2;
    }
  }
}

constexpr int64_t kSmall = 16;  // elements of a message whose bytes take no time
constexpr size_t kSmallMessages = 8;
constexpr double kSmallSeconds = 0.3;

// Memory for gradients, and how they are summed up.
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

// Seconds for all of these messages, one after the other. Each has its own memory, as gradients do, so several can be
// in flight.
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
           wait_for(handles);
           backend.wait();
         });
}

// Keeps two messages in flight, so that the queue is never empty. A number beside each buffer counts the ranks that
// want to end: all ranks see the same sum.
double messages_per_second(dist::Communicator& sums, int64_t elements, DType wire, const std::atomic<bool>& finish) {
  struct Slot {
    std::vector<double> memory;
    std::vector<float> rounded;
    double wanting = 0;
    dist::Handle values, counted;
  };
  std::array<Slot, 2> slots;
  const auto start = [&](Slot& slot) {
    slot.memory.resize(static_cast<size_t>(elements));
    slot.wanting = finish ? 1 : 0;
    slot.rounded.resize(slot.memory.size());
    slot.values =
        Gradients{make_view(slot.memory.data(), wire, 1, elements), host_view(slot.rounded.data(), 1, elements)}.start(
            sums);
    slot.counted = sums.start_all_reduce(host_view(&slot.wanting, 1, 1));
  };
  const Stopwatch watch;
  double messages = 0;
  const auto wait = [&](Slot& slot) {
    slot.values.wait();
    slot.counted.wait();
    ++messages;
    return slot.wanting == sums.size();
  };
  start(slots[0]);
  for (size_t next = 1;; next ^= 1) {
    start(slots[next]);
    if (wait(slots[next ^ 1])) {
      wait(slots[next]);
      return messages / watch.seconds();
    }
  }
}

}  // namespace

std::vector<Link> measure_links(dist::ProcessGroup& group, dist::Communicator& control, double seconds) {
  std::vector<int> first(static_cast<size_t>(group.nodes()), -1);
  for (const dist::RankInfo& member : group.ranks()) {
    int& rank = first[static_cast<size_t>(member.node)];
    rank = rank < 0 ? member.rank : rank;
  }
  const double each = std::clamp(seconds / (group.nodes() * (group.nodes() - 1)), 0.1, 1.0);
  std::vector<Link> links;
  for (int to = 1; to < group.nodes(); ++to) {
    for (int from = 0; from < to; ++from) {
      const std::vector<int> ranks{first[static_cast<size_t>(from)], first[static_cast<size_t>(to)]};
      if (std::find(ranks.begin(), ranks.end(), group.rank()) != ranks.end()) {
        dist::Communicator& pair = group.add_communicator(fmt::format("preflight {} {}", from, to), ranks);
        Link link{.from = from, .to = to};
        compare_clocks(pair, link);
        link.there = one_way(pair, 0, each);
        link.back = one_way(pair, 1, each);
        if (group.rank() == ranks[0]) {
          links.push_back(link);
        }
      }
      control.barrier();
    }
  }
  return links;
}

NetworkModel measure_sums(dist::Communicator& sums, dist::Communicator& control, backend::Backend& backend,
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
  const double a_message = std::min(small, all / 2 / messages);  // a busy machine is slow even for a few bytes
  const double rate = bytes / (all - messages * a_message);
  return {a_message, rate, rate, 0};
}

double add_up_beside(dist::Communicator& sums, int64_t elements, DType wire, const std::function<bool()>& work) {
  std::atomic<bool> finish = false;
  std::future<double> rate =
      std::async(std::launch::async, [&] { return messages_per_second(sums, elements, wire, finish); });
  try {
    while (rate.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      finish = work() || finish;
    }
  } catch (...) {
    finish = true;  // the future waits for its thread
    throw;
  }
  return rate.get();
}

}  // namespace tandem::preflight
