// The one door to arithmetic: a Backend is memory and an order of work, and computes ops (backend/ops.h) over views.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "backend/device_traits.h"
#include "backend/ops.h"
#include "tensor/stream.h"

namespace tandem::backend {

// The device has less memory than was asked for; what was there before is as it was.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// ---- work that a device does while the host goes on: recorded work, data on its way in, results on their way out. On
// a CPU, where every call has ended when it returns, these are plain calls and copies.

// A fixed sequence of ops over fixed memory, recorded once. run() gives it to the backend again.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void run() = 0;
};

// Brings blocks of host data to one place in the backend's memory, each ahead of the work that reads it.
//   fill(feed.next()); feed.send(); ... ops on feed.block() ...
class Feed {
 public:
  virtual ~Feed() = default;
  virtual std::span<std::byte> next() = 0;  // host memory for the next block; waits while all are on their way
  virtual void send() = 0;                  // ops given from now on find the block that next() returned
  virtual void* block() const = 0;          // in the backend's memory, always the same place
};

// Brings results back without waiting for them.
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual void post() = 0;             // queues what block() will hold when the ops given so far are done
  virtual size_t waiting() const = 0;  // posted and not taken
  virtual void take(void* to) = 0;     // the oldest block posted; waits for it
  virtual void* block() const = 0;     // in the backend's memory
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string description() const = 0;
  virtual DeviceTraits traits() const = 0;
  // Bytes of the device's memory that are free, and all of them; the machine's on a CPU.
  struct MemorySizes {
    size_t free = 0, total = 0;
    size_t own = 0;  // that the backend took for itself when it was made
  };
  virtual MemorySizes memory_sizes() const = 0;

  // ---- order. Ops run in the order in which they are given; a device may still be at it when the call has returned.
  virtual void wait() = 0;  // until all that was given is done; fails with what went wrong in it
  // What the ops are given to, for those who must order other work with them; empty on a CPU.
  virtual DeviceStream stream() const { return {}; }
  // *time becomes the moment at which the ops given so far are done: nanoseconds of the device's own clock.
  virtual void stamp(uint64_t* time) = 0;
  // `body` gives ops, and neither allocates, uploads nor downloads. It is run once to record, not to compute.
  virtual std::unique_ptr<Recording> record(std::function<void()> body) = 0;
  virtual std::unique_ptr<Feed> make_feed(size_t bytes) = 0;
  virtual std::unique_ptr<Outbox> make_outbox(size_t bytes) = 0;

  // ---- choice among algorithms, where there is one (matrix products on a GPU). While tuning, the first call of each
  // shape times what there is and keeps the fastest. The choices as text: one line a shape, empty on a CPU.
  virtual void set_tuning(bool /*on*/) {}
  virtual std::string algorithms() const { return {}; }
  virtual void use_algorithms(const std::string& /*table*/, const std::string& /*name*/) {}

  // ---- memory
  virtual Buffer allocate(size_t bytes) = 0;                   // uninitialised; may throw OutOfMemory
  virtual void upload(const View& to, const void* from) = 0;   // from host memory, contiguous views
  virtual void download(void* to, const ConstView& from) = 0;  // to host memory, contiguous views; waits
  void copy(const View& to, const ConstView& from) { run(op::Copy{.to = to, .from = from}); }
  void fill_zero(const View& to) { run(op::FillZero{.to = to}); }

  // ---- arithmetic
  virtual void run(const op::Any& op) = 0;
  // While on, gradients that are sums over rows (of biases, and of a norm's gamma and beta) may be put off, to be
  // computed together; all of them are done when it is off again.
  virtual void hold_sums(bool /*on*/) {}

  // Numbers of an AttentionShape's plan, 0 if there is nothing to plan.
  virtual int64_t attention_plan_size(const AttentionShape& /*shape*/, int64_t /*query_rows*/) const { return 0; }
};

// device: "cpu", "cuda", "cuda:N" or "auto", which takes the first usable GPU and else the CPU. Fails with one sentence
// where the device is missing or too old, or the program was not compiled for it. threads: of a CPU, 0 = all usable
// cores.
std::unique_ptr<Backend> make_backend(const std::string& device, int threads = 0);

// Whether this machine's CPU multiplies bf16 in hardware (AVX512_BF16 or AMX-BF16).
bool cpu_has_native_bf16();

// threads 0 = all usable cores.
std::unique_ptr<Backend> make_cpu_backend(int threads = 0);

}  // namespace tandem::backend
