// Work that a device does while the host goes on: recorded work, data on its way in, results on their way out.
// On a CPU, where every call has ended when it returns, these are plain calls and copies.
#pragma once

#include <cstddef>
#include <span>

#include "tensor/view.h"

namespace tandem::backend {

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

}  // namespace tandem::backend
