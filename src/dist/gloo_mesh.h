// Connections of one rank to all others, and their orderly end if one fails.
//
// All functions belong to one thread, except abort(), failure() and traffic().
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "dist/socket.h"

namespace gloo {
namespace rendezvous {
class Store;
}
namespace transport {
class Context;
class UnboundBuffer;
}  // namespace transport
}  // namespace gloo

namespace tandem::dist {

class GlooChannel;

class GlooMesh {
 public:
  GlooMesh(gloo::rendezvous::Store& store, int rank, int size, const std::string& address,
           std::chrono::milliseconds timeout, const std::string& secret);
  ~GlooMesh();

  int rank() const { return rank_; }
  int size() const { return size_; }
  // All other ranks in ascending order from the next one, and in descending order from the one before.
  const std::vector<int>& upwards() const { return upwards_; }
  const std::vector<int>& downwards() const { return downwards_; }

  // Does the work, which `what` names in messages. If it fails, the reason is sent to the peers and the connections are
  // closed; afterwards every call fails at once.
  void run(const std::string& what, const std::function<void()>& work);

  void abort(const std::string& reason);
  std::string failure() const;  // empty while all is well
  Traffic traffic() const { return {sent_, received_}; }

 private:
  friend class GlooChannel;
  static constexpr size_t kReasonBytes = 512;
  using StopReason = std::array<char, kReasonBytes>;  // why a rank stopped: text that ends with a zero

  std::vector<std::vector<char>> meet(gloo::rendezvous::Store& store, const std::vector<char>& own);
  void give_to_gloo(const std::string& address, std::vector<Socket> sockets);
  void expect_stop_reasons();
  void synchronize();
  void send_stop_reason(const std::string& reason);
  std::string stop_reason_of(int peer);
  [[noreturn]] void lose(int peer, const std::string& why);
  [[noreturn]] void stop(const std::string& reason);

  const int rank_;
  const int size_;
  std::vector<int> upwards_, downwards_;
  const std::chrono::milliseconds timeout_;
  std::string what_;  // the work under way
  bool sent_stop_reason_ = false;
  std::atomic<int64_t> sent_ = 0;
  std::atomic<int64_t> received_ = 0;

  mutable std::mutex mutex_;  // guards the next two
  std::string failure_;
  std::set<gloo::transport::UnboundBuffer*> waiting_;  // abort() wakes these

  std::shared_ptr<gloo::transport::Context> context_;  // shared with Gloo's buffers; gone after a failure
  std::vector<StopReason> stop_reasons_;               // by rank
  std::vector<std::unique_ptr<GlooChannel>> stop_reason_channels_;
};

// Memory that is sent to one peer, or filled by it, in pieces. Messages with the same slot are matched in the order of
// the calls. The memory is not touched after the destructor.
class GlooChannel {
 public:
  GlooChannel(GlooMesh& mesh, int peer, void* data, size_t bytes);
  ~GlooChannel();
  GlooChannel(const GlooChannel&) = delete;
  GlooChannel& operator=(const GlooChannel&) = delete;

  void send(uint64_t slot, size_t offset, size_t bytes);
  void receive(uint64_t slot, size_t offset, size_t bytes);
  // Waits for the oldest call that was not waited for, and counts `bytes` of traffic. relayed: the peer may be waiting
  // for another rank itself, so it gets a longer timeout to report that first.
  void wait_sent(size_t bytes);
  void wait_received(size_t bytes, bool relayed = false);

 private:
  friend class GlooMesh;
  template <class Call>
  void guard(const Call& call);

  GlooMesh& mesh_;
  const int peer_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
};

}  // namespace tandem::dist
