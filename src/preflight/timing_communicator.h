// Stands where a process group's communicator would: notes what a step would send and when, and sends nothing. So a
// step can be timed as it is without any network, with the real plan of messages.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "dist/communicator.h"

namespace tandem::preflight {

class TimingCommunicator final : public dist::Communicator {
 public:
  struct Message {
    double bytes = 0;        // mean of bytes sent and received; half the buffer for reduce-scatter and all-gather
    bool gradients = false;  // in the type of the wire, which the user can choose
    uint64_t ready = 0;      // when it could have started, by the backend's clock
  };

  // `real` says how work is shared out. Both must outlive this.
  TimingCommunicator(backend::Backend& backend, const dist::Communicator& real);

  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  int shard_number() const override { return real_.shard_number(); }
  dist::Handle start_all_reduce(const View& buffer) override {
    return note(bytes_of(buffer), buffer.dtype != DType::f64);
  }
  dist::Handle start_rounded_all_reduce(const View& sums, const View& values) override {
    return note((bytes_of(sums) + bytes_of(values)) / 2, true);
  }
  dist::Handle start_reduce_scatter(const View& buffer) override { return note(bytes_of(buffer) / 2, true); }
  dist::Handle start_all_gather(const View& buffer) override { return note(bytes_of(buffer) / 2, false); }
  dist::Handle start_broadcast(const View& buffer, int /*root*/) override { return note(bytes_of(buffer), false); }
  dist::Handle start_barrier() override { return {}; }
  void abort(const std::string& /*reason*/) override {}
  dist::Traffic traffic() const override { return {}; }
  dist::Traffic planned_reduce_scatter(int64_t count, DType type) const override {
    return real_.planned_reduce_scatter(count, type);
  }
  dist::Traffic planned_all_gather(int64_t count, DType type) const override {
    return real_.planned_all_gather(count, type);
  }

  // Before a step is given. A recorded step makes no calls when it runs again: its messages stay those of the first
  // time, with new moments.
  void begin_step() { begun_ = true; }
  // Of the step given last; waits for it.
  std::vector<Message> messages();

 private:
  static double bytes_of(const View& buffer) {
    return static_cast<double>(buffer.size()) * static_cast<double>(size_of(buffer.dtype));
  }
  dist::Handle note(double bytes, bool gradients);

  backend::Backend& backend_;
  const dist::Communicator& real_;
  Buffer moments_;  // u64 [kMost], in the backend's memory
  std::vector<Message> messages_;
  bool begun_ = false;
};

}  // namespace tandem::preflight
