// The collective operations of a process group.
//
// Every rank makes the same calls in the same order, with the same element type and count. Buffers are contiguous host
// memory in f32, bf16, f64 or i32, and are changed in place. All sums are made in the order rank 0 + rank 1 + ...:
// all-reduce is reduce-scatter followed by all-gather, so all ranks hold the same bits, and sharded work gives the same
// bits as unsharded. bf16 values are sent as bf16, added in f32 and rounded once. i32 wraps.
//
// A call that begins with start_ returns at once; the work runs in the background, and each call behaves as if it began
// when the one before it was done. The buffer belongs to the communicator until the handle is waited for. All functions
// may be called by one thread at a time, except abort() and traffic(), which any thread may call.
//
// A failure (a peer that is gone, or that sends nothing for the timeout) is an Error on every rank that names the rank;
// after it every further call fails at once with the same message.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "tensor/view.h"

namespace gloo::rendezvous {
class Store;
}

namespace tandem::dist {

// How a buffer is cut between ranks: equal shards of ceil(count / size) elements; the last ones are shorter or empty.
// A shard is elements [begin, begin + count).
struct Shard {
  int64_t begin = 0;
  int64_t count = 0;

  bool operator==(const Shard&) const = default;
};

inline Shard shard_of(int64_t count, int size, int rank) {
  const int64_t each = (count + size - 1) / size;
  const int64_t begin = std::min(count, each * rank);
  return {begin, std::min(each, count - begin)};
}

// Bytes that one rank sends and receives: planned here, counted in Communicator::traffic(). Payload only, without the
// headers of the transport.
struct Traffic {
  int64_t sent = 0;
  int64_t received = 0;

  bool operator==(const Traffic&) const = default;
};

inline Traffic operator+(const Traffic& a, const Traffic& b) { return {a.sent + b.sent, a.received + b.received}; }

// Work under way. wait() throws what the work threw. The destructor waits too, without throwing, so that a buffer
// declared before its handle outlives the work. For buffers on a device, waiting means that work given to the device
// from then on sees the result; the host continues.
class Handle {
 public:
  Handle() = default;  // nothing to wait for
  explicit Handle(std::future<void> done) : done_(std::move(done)) {}
  explicit Handle(std::function<void()> order) : order_(std::move(order)) {}
  Handle(Handle&&) = default;
  Handle& operator=(Handle&& other) noexcept {
    std::swap(done_, other.done_);
    std::swap(order_, other.order_);
    return *this;
  }
  ~Handle() {
    if (done_.valid()) {
      done_.wait();
    }
  }

  void wait() {
    if (done_.valid()) {
      done_.get();
    }
    if (order_) {
      std::exchange(order_, nullptr)();
    }
  }

 private:
  std::future<void> done_;
  std::function<void()> order_;
};

// One call of all ranks.
struct Collective {
  enum class Kind : uint8_t {
    all_reduce,          // every element becomes the sum over the ranks
    rounded_all_reduce,  // sums (f32) = the sums over the ranks of the buffer (f64), each rounded once; the buffer
                         // becomes undefined; used for gradients in host memory
    reduce_scatter,      // the elements of this rank's shard become the sum over the ranks; the others stay
    all_gather,          // every rank's shard becomes a copy of that rank's values
    broadcast,           // every element becomes rank `root`'s value
    barrier,             // done when every rank has called it
  };
  Kind kind;
  View buffer;
  View sums = {};
  int root = 0;
};

class Communicator {
 public:
  using Kind = Collective::Kind;

  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual Handle start(const Collective& call) = 0;

  Handle start_all_reduce(const View& buffer) { return start({Kind::all_reduce, buffer}); }
  Handle start_rounded_all_reduce(const View& sums, const View& values) {
    return start({Kind::rounded_all_reduce, values, sums});
  }
  Handle start_reduce_scatter(const View& buffer) { return start({Kind::reduce_scatter, buffer}); }
  Handle start_all_gather(const View& buffer) { return start({Kind::all_gather, buffer}); }
  Handle start_broadcast(const View& buffer, int root) { return start({Kind::broadcast, buffer, {}, root}); }
  Handle start_barrier() { return start({Kind::barrier, make_view(nullptr, DType::i32, 0, 0)}); }

  void all_reduce(const View& buffer) { start_all_reduce(buffer).wait(); }
  void reduce_scatter(const View& buffer) { start_reduce_scatter(buffer).wait(); }
  void all_gather(const View& buffer) { start_all_gather(buffer).wait(); }
  void broadcast(const View& buffer, int root) { start_broadcast(buffer, root).wait(); }
  void barrier() { start_barrier().wait(); }

  // Ends current and later calls with an Error of this text, here and on the peers. Only the first reason counts.
  virtual void abort(const std::string& reason) = 0;

  // The error of work that nobody waits for on the host; empty while all is well.
  virtual std::string failure() const { return {}; }

  // Bytes sent and received so far; 0 if the engine does not count them.
  virtual Traffic traffic() const { return {}; }

  // Seconds that sums and gathers took so far, waiting for peers included; 0 if the engine does not measure it.
  virtual double transfer_seconds() const { return 0; }

  // Bytes that a call sends and receives. In a reduce-scatter every rank sends each peer that peer's shard.
  virtual Traffic planned_reduce_scatter(int64_t count, DType type) const {
    const auto width = static_cast<int64_t>(size_of(type));
    const int64_t own = shard_of(count, size(), rank()).count;
    return {(count - own) * width, own * (size() - 1) * width};
  }
  Traffic planned_all_gather(int64_t count, DType type) const {
    const Traffic scatter = planned_reduce_scatter(count, type);
    return {scatter.received, scatter.sent};
  }
  // About 2 (size - 1) / size * count elements each way.
  Traffic planned_all_reduce(int64_t count, DType type) const {
    return planned_reduce_scatter(count, type) + planned_all_gather(count, type);
  }
  Traffic planned_rounded_all_reduce(int64_t count) const {
    return planned_reduce_scatter(count, DType::f64) + planned_all_gather(count, DType::f32);
  }

  // The number of this rank's shard of a buffer.
  virtual int shard_number() const { return rank(); }
  Shard own_shard(int64_t count) const { return shard_of(count, size(), shard_number()); }
};

// The largest of the values that the ranks give. `ranks` works on host memory.
double largest(Communicator& ranks, double value);

// A process group of one rank: every call leaves the buffer as it is.
std::unique_ptr<Communicator> make_single_communicator();

// Rank 0 of `size` ranks; the others do not exist: every call ends at once and leaves the buffer, in any memory, as it
// is. For timing a step without its network.
std::unique_ptr<Communicator> make_silent_communicator(int size);

// Collectives over TCP, carried out by Gloo. Through the store the ranks of one communicator learn each other's
// addresses. Returns when all ranks have met and every pair of them is connected. `address` is how the peers reach this
// rank: a host name, an IP address or a network interface. `timeout` is the longest wait for a peer, first to join and
// later for the next piece (256 KiB) that it has to send; a long transfer that makes progress is not a failure. Only
// those who know the secret become peers.
std::unique_ptr<Communicator> make_gloo_communicator(gloo::rendezvous::Store& store, int rank, int size,
                                                     const std::string& address, std::chrono::milliseconds timeout,
                                                     const std::string& secret);

// Throws unless the ranks can work on the call's buffers, which must be in host memory.
void require_communicable(const Collective& call);
// Throws for a rounded all-reduce.
void refuse_rounding(const Collective& call);

}  // namespace tandem::dist
