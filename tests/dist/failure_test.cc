// Ranks that do not join, die, stop or make other calls cause an error in time that names them.
#include <gloo/rendezvous/file_store.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "core/error.h"
#include "ranks.h"
#include "temporary_directory.h"

// Gloo leaks getaddrinfo()'s result if none of the addresses can be used.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:gloo::transport::tcp::"; }

namespace tandem::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::message_of;
using testing::same_bits;
using testing::sum_of;
using testing::TemporaryDirectory;
using testing::values_of;
using testing::view_of;
using testing::with_ranks;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A rank as a process that runs body(communicator) and exits with 0, or with 1 if it throws.
pid_t fork_rank(const std::filesystem::path& directory, int rank, int size, milliseconds timeout,
                const std::function<void(Communicator&)>& body) {
  const pid_t child = fork();
  if (child != 0) {
    return child;
  }
  int code = 1;
  try {
    gloo::rendezvous::FileStore store(directory.string());
    body(*make_gloo_communicator(store, rank, size, "127.0.0.1", timeout, "secret"));
    code = 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  _exit(code);
}

int exit_code(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Processes, SameBitsAsThreads) {
  for (const int size : {2, 3}) {
    const TemporaryDirectory directory;
    const auto expected = sum_of<float>(size, 1000003);
    std::vector<pid_t> children;
    for (int rank = 0; rank < size; ++rank) {
      children.push_back(fork_rank(directory.path(), rank, size, testing::kTimeout, [&](Communicator& ranks) {
        std::vector<float> values = values_of<float>(ranks.rank(), 1000003);
        ranks.all_reduce(view_of(values));
        require(same_bits(values, expected), "the processes' sums differ from the threads'");
      }));
    }
    for (const pid_t child : children) {
      EXPECT_EQ(exit_code(child), 0);
    }
  }
}

// Sums until a call fails, and checks that it fails in time and names `lost`, and that the next call fails at once.
void sum_until_lost(Communicator& ranks, int lost, const std::filesystem::path& started) {
  std::vector<float> values(8 << 20);  // 32 MB, 8 pieces a shard and more
  std::string message;
  for (int round = 0; message.empty(); ++round) {
    const auto began = steady_clock::now();
    message = message_of([&] { ranks.all_reduce(view_of(values)); });
    require(steady_clock::now() - began < milliseconds(8000), "an all-reduce took longer than the timeout");
    if (round == 2) {
      std::ofstream(started / ("started-" + std::to_string(ranks.rank())));
    }
  }
  require(contains(message, "rank " + std::to_string(lost)) && contains(message, "all-reduce of 8388608 f32"),
          "the message does not say what failed: {}", message);
  const auto began = steady_clock::now();
  require(message_of([&] { ranks.barrier(); }) == message, "a later call fails for another reason");
  require(steady_clock::now() - began < milliseconds(100), "a later call does not fail at once");
}

void end_one_of_three(int signal) {
  const TemporaryDirectory directory;
  const TemporaryDirectory started;
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank) {
    children.push_back(fork_rank(directory.path(), rank, 3, milliseconds(3000),
                                 [&](Communicator& ranks) { sum_until_lost(ranks, 2, started.path()); }));
  }
  const auto deadline = steady_clock::now() + milliseconds(20000);
  while (!std::filesystem::exists(started / "started-2") && steady_clock::now() < deadline) {
    usleep(3000);
  }
  EXPECT_TRUE(std::filesystem::exists(started / "started-2"));
  const auto ended = steady_clock::now();
  kill(children[2], signal);
  EXPECT_EQ(exit_code(children[0]), 0);
  EXPECT_EQ(exit_code(children[1]), 0);
  EXPECT_LT(steady_clock::now() - ended, milliseconds(8000));
  kill(children[2], SIGKILL);
  EXPECT_EQ(exit_code(children[2]), 128 + SIGKILL);
}

TEST(Processes, KilledOneIsNamedByTheOthers) {
  for (int round = 0; round < 3; ++round) {
    end_one_of_three(SIGKILL);
  }
}

TEST(Processes, StoppedOneIsNamedByTheOthers) { end_one_of_three(SIGSTOP); }

TEST(Communicator, MissingRankIsNamed) {
  gloo::rendezvous::HashStore store;
  const auto began = steady_clock::now();
  const std::string message =
      message_of([&] { make_gloo_communicator(store, 0, 3, "127.0.0.1", milliseconds(300), "secret"); });
  EXPECT_TRUE(contains(message, "rank 1 of 3 did not come")) << message;
  EXPECT_LT(steady_clock::now() - began, milliseconds(5000));
}

TEST(Communicator, BadAddressIsNamed) {
  const auto message_for = [](const std::string& address) {
    gloo::rendezvous::HashStore store;
    return message_of([&] { make_gloo_communicator(store, 0, 1, address, milliseconds(300), "secret"); });
  };
  const std::string unknown = message_for("no.such.host.invalid");
  EXPECT_TRUE(contains(unknown, "'no.such.host.invalid': no.such.host.invalid does not resolve")) << unknown;
  const std::string foreign = message_for("192.0.2.1");  // reserved for documentation
  EXPECT_TRUE(contains(foreign, "cannot be reached by its peers at '192.0.2.1'")) << foreign;
}

TEST(Communicator, AcceptsANetworkInterface) {
  gloo::rendezvous::HashStore store;
  make_gloo_communicator(store, 0, 1, "lo", milliseconds(1000), "secret")->barrier();
}

TEST(Communicator, APeerWithoutTheSecretIsNone) {
  gloo::rendezvous::HashStore store;
  std::vector<std::string> messages(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      messages[rank] = message_of([&] {
        make_gloo_communicator(store, rank, 2, "127.0.0.1", milliseconds(500), rank == 0 ? "secret" : "guess");
      });
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(messages[0], "rank 1 did not connect to rank 0 in time");
  EXPECT_TRUE(contains(messages[1], "rank 1 cannot connect to rank 0 at 127.0.0.1:")) << messages[1];
}

TEST(Communicator, DifferentCallsEndInAnError) {
  with_ranks(
      2,
      [&](Communicator& ranks) {
        std::vector<float> values(ranks.rank() == 0 ? 1000 : 2000);
        const std::string message = message_of([&] { ranks.all_reduce(view_of(values)); });
        EXPECT_TRUE(contains(message, "lost rank")) << message;
        EXPECT_FALSE(contains(message, "]:")) << "Gloo prints ports with their bytes swapped: " << message;
      },
      milliseconds(500));
}

TEST(Communicator, AbortEndsItEverywhere) {
  with_ranks(3, [&](Communicator& ranks) {
    std::vector<float> values(1000);
    std::string message;
    const auto began = steady_clock::now();
    if (ranks.rank() == 1) {
      Handle never = ranks.start_broadcast(view_of(values), 2);  // nobody else calls it
      ranks.abort("rank 9 is gone");
      message = message_of([&] { never.wait(); });
    } else {
      message = message_of([&] { ranks.all_reduce(view_of(values)); });
    }
    EXPECT_EQ(message, "rank 9 is gone") << ranks.rank();
    EXPECT_EQ(message_of([&] { ranks.barrier(); }), message);
    EXPECT_LT(steady_clock::now() - began, milliseconds(5000));
  });
}

TEST(Communicator, ClosingItEndsWorkUnderWay) {
  std::vector<float> values(1000);
  with_ranks(2, [&](Communicator&) {});
  gloo::rendezvous::HashStore store;
  std::thread other([&] {
    const auto peer = make_gloo_communicator(store, 1, 2, "127.0.0.1", testing::kTimeout, "secret");
    EXPECT_TRUE(contains(message_of([&] { peer->barrier(); }), "rank 0 closed its communicator"));
  });
  Handle handle;
  {
    const auto ranks = make_gloo_communicator(store, 0, 2, "127.0.0.1", testing::kTimeout, "secret");
    handle = ranks->start_all_reduce(view_of(values));
  }
  EXPECT_TRUE(contains(message_of([&] { handle.wait(); }), "closed its communicator"));
  other.join();
}

}  // namespace
}  // namespace tandem::dist
