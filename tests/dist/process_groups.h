// Process groups whose ranks are threads of this process.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/file.h"
#include "dist/message.h"
#include "dist/process_group.h"
#include "dist/socket.h"
#include "temporary_directory.h"

namespace tandem::testing {

// `size` ranks of this process: each thread calls join_process_group() with one of them.
inline std::vector<dist::World> make_local_worlds(int size) {
  dist::Socket listener = dist::listen_on(true, 0);
  std::vector<dist::World> worlds(size);
  const std::string secret = dist::random_token();
  for (int rank = 0; rank < size; ++rank) {
    worlds[rank].rank = worlds[rank].local_rank = rank;
    worlds[rank].size = worlds[rank].local_size = size;
    worlds[rank].host = host_name();
    worlds[rank].rendezvous = fmt::format("127.0.0.1:{}", dist::port_of(listener));
    worlds[rank].secret = secret;
    worlds[rank].started_by = "threads";
  }
  if (size > 1) {
    worlds[0].listener = listener.release();
  }
  return worlds;
}

// Short limits, and the process that runs the tests is never ended.
inline dist::ProcessGroupOptions quick_options() {
  using std::chrono::milliseconds;
  return {.join_timeout = milliseconds(10000),
          .heartbeat = milliseconds(100),
          .silence = milliseconds(1500),
          .collective_timeout = milliseconds(20000),
          .exit_after = milliseconds(0)};
}

// The error of each rank's thread, or "".
inline std::vector<std::string> run_ranks(const std::vector<dist::World>& worlds,
                                          const std::function<void(const dist::World&)>& body) {
  std::vector<std::string> errors(worlds.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < worlds.size(); ++i) {
    threads.emplace_back([&, i] { errors[i] = message_of([&] { body(worlds[i]); }); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return errors;
}

// Joins `size` ranks, runs body(group) on each, and leaves. Returns the error of each, or "".
inline std::vector<std::string> run_process_groups(int size, const std::function<void(dist::ProcessGroup&)>& body,
                                                   const dist::ProcessGroupOptions& options = quick_options()) {
  return run_ranks(make_local_worlds(size), [&](const dist::World& world) {
    const auto group = dist::join_process_group(world, {}, options);
    body(*group);
    group->leave();
  });
}

inline void expect_no_errors(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) {
    EXPECT_EQ(error, "");
  }
}

inline void expect_all_say(const std::vector<std::string>& errors, const std::string& part) {
  for (const std::string& error : errors) {
    EXPECT_NE(error.find(part), std::string::npos) << "'" << error << "' does not say '" << part << "'";
  }
}

}  // namespace tandem::testing
