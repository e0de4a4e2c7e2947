// A Backend allocates memory, orders work and computes ops (backend/ops.h) over views; all arithmetic goes through it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "backend/device_traits.h"
#include "backend/ops.h"
#include "tensor/stream.h"

namespace tandem::backend {

// The device has less memory than requested; what was allocated before is unaffected.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// ---- asynchronous work: recordings, uploads and results that a device handles while the host continues. On a CPU,
// where every call completes before it returns, these are plain calls and copies.

// A fixed sequence of ops over fixed memory, recorded once. run() replays it.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void run() = 0;
};

// Uploads blocks of host data to a fixed address in the backend's memory, each ahead of the work that reads it.
//   fill(feed.next()); feed.send(); ... ops on feed.block() ...
class Feed {
 public:
  virtual ~Feed() = default;
  virtual std::span<std::byte> next() = 0;  // host memory for the next block; waits while all are in flight
  virtual void send() = 0;                  // ops given from now on read the block that next() returned
  virtual void* block() const = 0;          // the fixed address in the backend's memory
};

// Brings results back to the host without blocking it.
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual void post() = 0;             // queues what block() will hold when the ops given so far are done
  virtual size_t waiting() const = 0;  // blocks posted and not yet taken
  virtual void take(void* to) = 0;     // copies out the oldest block posted; waits for it
  virtual void* block() const = 0;     // address in the backend's memory
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string description() const = 0;
  virtual DeviceTraits traits() const = 0;
  // Free and total bytes of the device's memory, or of the machine's on a CPU.
  struct MemorySizes {
    size_t free = 0, total = 0;
    size_t own = 0;  // bytes that the backend itself took when it was made
  };
  virtual MemorySizes memory_sizes() const = 0;

  // ---- order. Ops run in the order in which they are given; a device may still be working after the call returns.
  virtual void wait() = 0;  // waits for all ops given so far; fails with their error, if any
  // The queue that ops are given to, for code that must order other work with them; empty on a CPU.
  virtual DeviceStream stream() const { return {}; }
  // Sets *time, once the ops given so far are done, to the device's own clock in nanoseconds.
  virtual void stamp(uint64_t* time) = 0;
  // `body` only gives ops: it does not allocate, upload or download. It runs once, to record and not to compute.
  virtual std::unique_ptr<Recording> record(std::function<void()> body) = 0;
  virtual std::unique_ptr<Feed> make_feed(size_t bytes) = 0;
  virtual std::unique_ptr<Outbox> make_outbox(size_t bytes) = 0;

  // ---- choice of algorithms (for matrix products on a GPU). While tuning, the first call of each shape times the
  // candidates and keeps the fastest. algorithms() returns the choices as text, one line per shape; empty on a CPU.
  virtual void set_tuning(bool /*on*/) {}
  virtual std::string algorithms() const { return {}; }
  virtual void use_algorithms(const std::string& /*table*/, const std::string& /*name*/) {}

  // ---- memory
  virtual Buffer allocate(size_t bytes) = 0;  // uninitialised; may throw OutOfMemory
  // Host memory that the device reads and writes at full speed. On a GPU machine some GB of it take seconds.
  virtual Buffer allocate_host(size_t bytes) { return allocate(bytes); }
  virtual void upload(const View& to, const void* from) = 0;   // `from`: host memory; `to`: contiguous
  virtual void download(void* to, const ConstView& from) = 0;  // `to`: host memory; `from`: contiguous; waits
  void copy(const View& to, const ConstView& from) { run(op::Copy{.to = to, .from = from}); }
  void fill_zero(const View& to) { run(op::FillZero{.to = to}); }

  // ---- arithmetic
  virtual void run(const op::Any& op) = 0;
  // While on, gradients that are sums over rows (of biases, and of a norm's gamma and beta) may be deferred and
  // computed together; all of them are done when it is off again.
  virtual void hold_sums(bool /*on*/) {}

  // Elements of an AttentionShape's plan; 0 if there is nothing to plan.
  virtual int64_t attention_plan_size(const AttentionShape& /*shape*/, int64_t /*query_rows*/) const { return 0; }
};

// device: "cpu", "cuda", "cuda:N" or "auto", which takes the first usable GPU or else the CPU. Fails if the device is
// missing or too old, or if the program was not compiled for it. threads: CPU threads, 0 = all usable cores.
std::unique_ptr<Backend> make_backend(const std::string& device, int threads = 0);

// Whether this machine's CPU multiplies bf16 in hardware (AVX512_BF16 or AMX-BF16).
bool cpu_has_native_bf16();

// threads 0 = all usable cores.
std::unique_ptr<Backend> make_cpu_backend(int threads = 0);

}  // namespace tandem::backend
