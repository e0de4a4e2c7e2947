// The thread that sends heartbeats to rank 0 and receives the news of failures.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dist/process_group.h"
#include "dist/rendezvous_client.h"

namespace tandem::dist {

class Heartbeat {
 public:
  // Starts the heartbeats. `self` and `rank_0` are names for messages.
  Heartbeat(RendezvousClient connection, std::string self, std::string rank_0, const ProcessGroupOptions& options);
  ~Heartbeat();  // without leave(), the other ranks learn that this one ended early
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  std::string failure() const;  // empty while all is well
  std::string wait_for_failure(std::chrono::milliseconds longest) const;
  void on_failure(std::function<void(const std::string&)> action);
  void set_rank_0(const std::string& name);

  void stop(const std::string& reason);  // ends all ranks
  void leave();                          // waits for all ranks to leave

 private:
  void run();
  bool listen(Deadline deadline);
  void fail_with(const std::string& reason);
  void end_process_after(std::chrono::milliseconds grace);

  RendezvousClient connection_;
  const std::string self_;
  const ProcessGroupOptions options_;
  Deadline last_heard_;

  mutable std::mutex mutex_;  // guards everything up to actions_
  mutable std::condition_variable changed_;
  std::string rank_0_;
  std::string failure_;
  bool left_ = false;  // all ranks have left
  bool end_ = false;
  std::vector<std::function<void(const std::string&)>> actions_;

  std::mutex sending_;
  std::thread watchdog_;  // ends the process if it does not end by itself after a failure
  std::thread thread_;
};

}  // namespace tandem::dist
