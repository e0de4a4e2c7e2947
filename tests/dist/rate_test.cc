// How much of a link all-reduce uses: two ranks as threads, each in a network namespace of its own.
#include <fcntl.h>
#include <gloo/rendezvous/hash_store.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "core/error.h"
#include "dist/communicator.h"
#include "dist/hosts.h"

namespace tandem::testing {
namespace {

using Clock = std::chrono::steady_clock;

void enter(const std::string& space) {
  const int file = open(("/var/run/netns/" + space).c_str(), O_RDONLY | O_CLOEXEC);
  require(file >= 0 && setns(file, CLONE_NEWNET) == 0, "cannot enter the namespace {}", space);
  close(file);
}

// Payload that each of two ranks sends in a second while a buffer of so many floats is all-reduced; the best of
// `times`, because other programs on this machine can only slow it down.
double bytes_per_second(const Hosts& hosts, int64_t floats, int times) {
  gloo::rendezvous::HashStore store;
  double best = 0;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      enter(hosts.space(rank));
      const auto all =
          dist::make_gloo_communicator(store, rank, 2, Hosts::address(rank), std::chrono::minutes(2), "secret");
      std::vector<float> values(static_cast<size_t>(floats), 1.0F + static_cast<float>(rank));
      for (int i = 0; i < times; ++i) {
        all->barrier();
        const auto begin = Clock::now();
        all->all_reduce(host_view(values.data(), 1, floats));
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        if (rank == 0) {
          best = std::max(best, static_cast<double>(floats) * sizeof(float) / seconds);
        }
      }
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  return best;
}

TEST(AllReduceRate, ReachesMostOfTheLink) {
  if (const std::string why = Hosts::unavailable(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  const bool soak = std::getenv("TANDEM_SOAK") != nullptr;
  for (const auto& [name, rate] : {std::pair("100mbit", 100e6), std::pair("1gbit", 1e9)}) {
    const Hosts hosts(2, name);
    for (const int64_t megabytes : soak ? std::vector<int64_t>{10, 50, 250} : std::vector<int64_t>{10}) {
      const double reached = bytes_per_second(hosts, megabytes * 1000000 / 4, megabytes > 10 ? 2 : 5) * 8;
      std::printf("%ld MB at %s: %.1f %% of the link\n", static_cast<long>(megabytes), name, 100 * reached / rate);
      EXPECT_GE(reached, 0.85 * rate) << megabytes << " MB at " << name;
      EXPECT_LE(reached, 1.02 * rate) << "the link is not as slow as it should be";
    }
  }
}

}  // namespace
}  // namespace tandem::testing
