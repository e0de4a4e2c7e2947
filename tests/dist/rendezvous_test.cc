// Which ranks may join, which may not and why; and foreign connections to the port.
#include <sys/socket.h>

#include <atomic>
#include <random>

#include "core/error.h"
#include "dist/message.h"
#include "dist/rendezvous_client.h"
#include "dist/socket.h"
#include "process_groups.h"
#include "ranks.h"

namespace tandem::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::expect_all_say;
using testing::expect_no_errors;
using testing::make_local_worlds;
using testing::message_of;
using testing::quick_options;
using testing::run_ranks;

// Local ranks on hosts with the names a, b, c, ...
std::vector<World> worlds_of(int size) {
  auto worlds = make_local_worlds(size);
  for (World& world : worlds) {
    world.host = std::string(1, static_cast<char>('a' + world.rank));
    world.hosts = {"a", "b", "c", "d"};
  }
  return worlds;
}

ProcessGroupOptions short_join() {
  ProcessGroupOptions options = quick_options();
  options.join_timeout = milliseconds(700);
  return options;
}

// Joins with the identities that `identity` gives by rank.
std::vector<std::string> join_with(std::vector<World> worlds, const std::function<Identity(int)>& identity) {
  return run_ranks(
      worlds, [&](const World& world) { join_process_group(world, identity(world.rank), quick_options())->leave(); });
}

TEST(Rendezvous, RefusesWhatDiffers) {
  struct Case {
    std::string Identity::*field;
    std::string message;
  };
  for (const Case& each :
       {Case{&Identity::version, "rank 1 on host b has another version of the program (x) than rank 0"},
        Case{&Identity::config, "rank 1 on host b has another config (x) than rank 0 on host a (y)"},
        Case{&Identity::data, "rank 1 on host b has another data (x) than rank 0 on host a (y)"}}) {
    expect_all_say(join_with(worlds_of(3),
                             [&](int rank) {
                               Identity identity;
                               identity.*each.field = rank == 1 ? "x" : "y";
                               return identity;
                             }),
                   each.message);
  }
}

TEST(Rendezvous, ComparesCheckpointsOfTheSameStep) {
  const auto join = [&](const std::vector<std::string>& checkpoints) {
    return join_with(worlds_of(3), [&](int rank) {
      Identity identity;
      identity.checkpoint = checkpoints[rank];
      return identity;
    });
  };
  expect_no_errors(join({"100 abc", "50 def", ""}));
  expect_no_errors(join({"", "50 def", "50 def"}));
  expect_all_say(join({"100 abc", "50 def", "50 abc"}), "another checkpoint of step 50 than rank");
}

TEST(Rendezvous, OneGpuForOneRank) {
  const auto join = [&](const std::vector<std::string>& hosts, const std::vector<std::string>& devices) {
    auto worlds = worlds_of(3);
    for (World& world : worlds) {
      world.host = hosts[world.rank];
    }
    return join_with(worlds, [&](int rank) {
      Identity identity;
      identity.device = devices[rank];
      return identity;
    });
  };
  expect_no_errors(join({"a", "a", "a"}, {"GPU-1", "GPU-2", ""}));
  expect_no_errors(join({"a", "b", "b"}, {"GPU-1", "GPU-1", ""}));
  expect_no_errors(join({"a", "a", "a"}, {"", "", ""}));
  const auto errors = join({"a", "b", "b"}, {"GPU-1", "GPU-7", "GPU-7"});
  expect_all_say(errors, "uses the same GPU as rank");
  expect_all_say(errors, "on host b (GPU-7)");
}

TEST(Rendezvous, WrongSecret) {
  auto worlds = worlds_of(3);
  worlds[2].secret = "guess";
  const auto errors =
      run_ranks(worlds, [&](const World& world) { join_process_group(world, {}, short_join())->leave(); });
  EXPECT_NE(errors[2].find("rank 2 on host c cannot join: the secret is wrong"), std::string::npos) << errors[2];
  for (const int rank : {0, 1}) {
    EXPECT_NE(errors[rank].find("rank 2 on host c of 3 did not come within"), std::string::npos) << errors[rank];
  }
}

TEST(Rendezvous, NoSecret) {
  auto worlds = worlds_of(2);
  const Socket unused(worlds[0].listener);
  worlds[0].secret = "";
  EXPECT_NE(message_of([&] { join_process_group(worlds[0], {}); }).find("set TANDEM_SECRET"), std::string::npos);
}

TEST(Rendezvous, NamesWhoIsMissing) {
  auto worlds = worlds_of(4);
  worlds.erase(worlds.begin() + 1, worlds.begin() + 3);
  const auto errors =
      run_ranks(worlds, [&](const World& world) { join_process_group(world, {}, short_join())->leave(); });
  expect_all_say(errors, "rank 1 on host b, rank 2 on host c of 4 did not come within 1 s");
}

TEST(Rendezvous, TheSameRankTwice) {
  auto worlds = worlds_of(3);
  worlds[2].rank = 1;
  const auto errors =
      run_ranks(worlds, [&](const World& world) { join_process_group(world, {}, short_join())->leave(); });
  const bool second = errors[2].find("two processes were given the same rank") != std::string::npos;
  const bool first = errors[1].find("two processes were given the same rank") != std::string::npos;
  EXPECT_NE(first, second) << errors[1] << "\n" << errors[2];
  EXPECT_NE(errors[0].find("rank 2 on host c of 3 did not come"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("claimed to be rank 1"), std::string::npos) << errors[0];
}

TEST(Rendezvous, AnotherNumberOfRanks) {
  auto worlds = worlds_of(3);
  worlds[1].size = 4;
  expect_all_say(
      run_ranks(worlds, [&](const World& world) { join_process_group(world, {}, quick_options())->leave(); }),
      "rank 1 on host b was given 4 as the number of ranks, but rank 0 was given 3");
}

// Ranks count by host numbers, so a number that is too high must be refused.
TEST(Rendezvous, AHostThatCannotBe) {
  auto worlds = worlds_of(3);
  worlds[2].node = 3;
  worlds[2].nodes = 4;
  expect_all_say(
      run_ranks(worlds, [&](const World& world) { join_process_group(world, {}, quick_options())->leave(); }),
      "rank 2 on host c was given host number 3, but rank");
}

// A process that dies closes one connection after the other; the last rank may join in between.
TEST(Rendezvous, ARankThatHalfDied) {
  ProcessGroupOptions options = quick_options();
  options.join_timeout = milliseconds(1500);
  const auto errors = run_ranks(worlds_of(3), [&](const World& world) {
    if (world.rank != 1) {
      std::this_thread::sleep_for(milliseconds(world.rank * 200));
      join_process_group(world, {}, options)->leave();
      return;
    }
    const auto end = steady_clock::now() + milliseconds(10000);
    RendezvousClient heart(world, "heart", end);
    {
      RendezvousClient work(world, "work", end);
      work.send({"join", "3", "0", world.host, local_address(work.socket()), "lo", "", "", "", "", ""});
    }
    std::optional<Message> heard;
    while (!heard || heard->front() != "failure") {
      heart.send({"beat"});
      heard = heart.receive(steady_clock::now() + milliseconds(50));
      require(steady_clock::now() < end, "the process group never ends");
    }
  });
  EXPECT_EQ(errors[1], "");
  for (const int rank : {0, 2}) {
    EXPECT_NE(errors[rank].find("rank 1 on host b of 3 did not come within"), std::string::npos) << errors[rank];
  }
}

TEST(Rendezvous, ARankThatCannotBe) {
  auto worlds = worlds_of(2);
  worlds[1].rank = 2;
  worlds[1].size = 3;
  const auto errors =
      run_ranks(worlds, [&](const World& world) { join_process_group(world, {}, short_join())->leave(); });
  EXPECT_NE(errors[1].find("2 as the number of ranks, so there is no rank 2"), std::string::npos) << errors[1];
}

TEST(Rendezvous, NobodyListens) {
  auto worlds = worlds_of(2);
  { const Socket closed(worlds[0].listener); }
  const std::string message = message_of([&] { join_process_group(worlds[1], {}, short_join()); });
  EXPECT_NE(message.find("rank 1 on host b cannot reach rank 0 at 127.0.0.1:"), std::string::npos) << message;
  EXPECT_NE(message.find("Connection refused"), std::string::npos) << message;
}

TEST(Rendezvous, TriesAllAddresses) {
  auto worlds = worlds_of(2);
  worlds[1].rendezvous = "no-such-host.invalid,127.0.0.2," + worlds[1].rendezvous;
  expect_no_errors(
      run_ranks(worlds, [&](const World& world) { join_process_group(world, {}, quick_options())->leave(); }));
}

// Another program listens at the port, and sends something else or nothing.
TEST(Rendezvous, SomebodyElseListens) {
  for (const std::string& banner : {std::string("SSH-2.0-OpenSSH_9.2\r\n"), std::string(5000, 'x'), std::string()}) {
    const Socket listener = listen_on(true, 0);
    auto worlds = worlds_of(2);
    const Socket unused(worlds[0].listener);
    worlds[1].rendezvous = fmt::format("127.0.0.1:{}", port_of(listener));
    std::thread server([&] {
      std::vector<Socket> open;
      for (const auto end = steady_clock::now() + milliseconds(900); steady_clock::now() < end;) {
        Socket socket = accept_from(listener);
        if (socket.open()) {
          send(socket.get(), banner.data(), banner.size(), MSG_NOSIGNAL);
          open.push_back(std::move(socket));
        }
        std::this_thread::sleep_for(milliseconds(10));
      }
    });
    const std::string message = message_of([&] { join_process_group(worlds[1], {}, short_join()); });
    EXPECT_NE(message.find("rank 1 on host b cannot"), std::string::npos) << message;
    EXPECT_NE(message.find(banner.empty() ? "does not answer" : "is not a rendezvous of"), std::string::npos)
        << message;
    server.join();
  }
}

// Port scanners, browsers, connections that send nothing or false lengths, before and while the process group works.
TEST(Rendezvous, StrangersBreakNothing) {
  const auto worlds = worlds_of(3);
  const int port = parse_endpoint(worlds[0].rendezvous).port;
  const auto deadline = steady_clock::now() + milliseconds(10000);
  std::vector<Socket> strangers;
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(connect_to("127.0.0.1", port, deadline));
    std::string bytes(random() % 3000, '\0');
    for (char& c : bytes) {
      c = static_cast<char>(random());
    }
    bytes = i % 5 == 0   ? ""
            : i % 5 == 1 ? "GET / HTTP/1.1\r\n\r\n"
            : i % 5 == 2 ? encode({"hello", "work", "1", "0", std::string(32, 'x')})
            : i % 5 == 3 ? std::string("\x7f\xff\xff\xff", 4)
                         : bytes;
    send(strangers.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (i % 7 == 0) {
      strangers.pop_back();
    }
  }
  expect_no_errors(run_ranks(worlds, [&](const World& world) {
    const auto group = join_process_group(world, {}, quick_options());
    EXPECT_THROW(connect_to("127.0.0.1", port, deadline), Error) << "the port is still open";
    std::vector<float> values(1000, 1.0F);
    group->communicator().all_reduce(testing::view_of(values));
    EXPECT_EQ(values[999], 3.0F);
    group->leave();
  }));
}

// Passes on what rank 1 and the server send each other; then it adds a message of its own for one of them.
void relay(const Socket& listener, int port, const std::atomic<bool>& end, bool to_server) {
  struct Link {
    Socket rank, server;
  };
  std::vector<Link> links;
  const auto pass_on = [](const Socket& from, const Socket& to) {
    char bytes[4096];
    const ssize_t count = recv(from.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (count > 0) {
      send(to.get(), bytes, static_cast<size_t>(count), MSG_NOSIGNAL);
    }
  };
  int turns = 0;
  while (!end) {
    if (Socket rank = accept_from(listener); rank.open()) {
      links.push_back({std::move(rank), connect_to("127.0.0.1", port, steady_clock::now() + milliseconds(1000))});
    }
    for (const Link& link : links) {
      pass_on(link.rank, link.server);
      pass_on(link.server, link.rank);
    }
    if (links.size() == 2 && ++turns == 500) {  // the first is for heartbeats
      const std::string bytes = encode({to_server ? "stop" : "failure", "all is lost"});
      send((to_server ? links[0].server : links[0].rank).get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST(Rendezvous, ARelayCannotAddAMessage) {
  for (const bool to_server : {true, false}) {
    auto worlds = worlds_of(2);
    const int port = parse_endpoint(worlds[0].rendezvous).port;
    const Socket listener = listen_on(true, 0);
    worlds[1].rendezvous = fmt::format("127.0.0.1:{}", port_of(listener));
    std::atomic<bool> end = false;
    std::thread relaying([&] { relay(listener, port, end, to_server); });
    const auto errors = run_ranks(worlds, [&](const World& world) {
      const auto group = join_process_group(world, {}, quick_options());
      std::vector<float> values(10);
      while (true) {
        group->communicator().all_reduce(testing::view_of(values));
        std::this_thread::sleep_for(milliseconds(5));
      }
    });
    end = true;
    relaying.join();
    for (const std::string& error : errors) {
      EXPECT_EQ(error.find("all is lost"), std::string::npos) << error;
    }
    EXPECT_NE(errors[to_server ? 0 : 1].find("a message was altered or added on its way"), std::string::npos)
        << errors[to_server ? 0 : 1];
  }
}

// What a false server says is not believed, and neither is a refusal of the true one that says nothing of the secret.
TEST(Rendezvous, ARefusalMustBeSealed) {
  for (const Message& lie : {Message{"refused", "your disk is on fire", std::string(32, 'x')}, Message{"welcome"},
                             Message{"welcome", std::string(32, 'x')}}) {
    const Socket listener = listen_on(true, 0);
    auto worlds = worlds_of(2);
    const Socket unused(worlds[0].listener);
    worlds[1].rendezvous = fmt::format("127.0.0.1:{}", port_of(listener));
    std::thread server([&] {
      Socket rank;
      for (const auto until = steady_clock::now() + milliseconds(5000); !rank.open() && steady_clock::now() < until;) {
        rank = accept_from(listener);
      }
      const std::string bytes = encode({"tandem rendezvous 2", random_token()}) + encode(lie);
      send(rank.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      std::this_thread::sleep_for(milliseconds(300));
    });
    const std::string message = message_of([&] { join_process_group(worlds[1], {}, short_join()); });
    EXPECT_NE(message.find("rank 1 on host b cannot join: the secret is wrong"), std::string::npos) << message;
    server.join();
  }
}

// A peer that knows the secret but sends nonsense ends the process group; the message names its rank.
TEST(Rendezvous, NonsenseFromARankIsNamed) {
  const auto worlds = worlds_of(2);
  const auto errors = run_ranks(worlds, [&](const World& world) {
    if (world.rank == 1) {
      RendezvousClient client(world, "work", steady_clock::now() + milliseconds(5000));
      client.send({"dance"});
      std::this_thread::sleep_for(milliseconds(500));
    } else {
      join_process_group(world, {}, quick_options())->leave();
    }
  });
  EXPECT_NE(errors[0].find("rank 1 on host b sent an invalid message: 'dance'"), std::string::npos) << errors[0];
}

TEST(Message, ComesOutAsItWentIn) {
  const std::vector<Message> sent = {{"a"}, {"", "b", std::string(70000, 'c')}, {std::string("\0\1", 2), ""}};
  std::string bytes;
  for (const Message& message : sent) {
    bytes += encode(message);
  }
  MessageReader reader(1 << 20);
  std::vector<Message> received;
  for (const char byte : bytes) {  // byte by byte
    reader.add({&byte, 1});
    while (auto message = reader.next()) {
      received.push_back(*message);
    }
  }
  EXPECT_EQ(received, sent);
}

TEST(Message, GarbageIsAnError) {
  const auto read = [](const std::string& bytes) {
    return message_of([&] {
      MessageReader reader(100);
      reader.add(bytes);
      reader.next();
    });
  };
  EXPECT_NE(read(std::string("\0\0\0\x65", 4)), "");  // longer than allowed
  EXPECT_NE(read(std::string("\0\0\0\0", 4)), "");    // no fields
  EXPECT_NE(read(std::string("\0\0\0\x02"
                             "ab",
                             6)),
            "");  // half a length
  EXPECT_NE(read(std::string("\0\0\0\x05\0\0\0\x02"
                             "a",
                             9)),
            "");                                                      // half a field
  EXPECT_NE(read(std::string("\0\0\0\x04\xff\xff\xff\xff", 8)), "");  // a field longer than all
  EXPECT_EQ(read(std::string("\0\0\0\x05\0\0\0\x01"
                             "a",
                             9)),
            "");
  EXPECT_THROW(number_of("12x", 0, 100), Error);
  EXPECT_THROW(number_of("", 0, 100), Error);
  EXPECT_THROW(number_of("101", 0, 100), Error);
  EXPECT_THROW(number_of("99999999999999999999", 0, 100), Error);
  EXPECT_EQ(printable("a\nb\x1b[2J"), "a?b?[2J");
}

TEST(Authentication, ProvesTheSecret) {
  EXPECT_NE(proof("a", {"x"}), proof("b", {"x"}));
  EXPECT_NE(proof("a", {"x", "y"}), proof("a", {"xy"}));
  EXPECT_TRUE(same_proof(proof("a", {"x"}), proof("a", {"x"})));
  EXPECT_EQ(proof("a", {"x"}).size(), 32U);
  EXPECT_NE(random_token(), random_token());
  EXPECT_EQ(random_token().size(), 32U);
}

TEST(Authentication, SealsOpenInOrderAndUnalteredOnly) {
  const Message greetings{"a", "b", "work", "1"};
  Session sender("secret", greetings);
  Session receiver("secret", greetings);
  const Message first = sender.of_rank.close({"set", "x", "1"});
  const Message second = sender.of_rank.close({"set", "x", "1"});
  EXPECT_NE(first, second);
  const auto opens = [](Session session, const Message& message) { return session.of_rank.open(message).size() == 3; };
  EXPECT_THROW(opens(receiver, second), Altered) << "one was left out";
  EXPECT_THROW(opens(receiver, {"set", "x", "2", first.back()}), Altered);
  EXPECT_THROW(opens(receiver, {"set", "x", "1"}), Altered);
  EXPECT_THROW(opens(receiver, {first.back()}), Altered);
  EXPECT_THROW(receiver.of_server.open(first), Altered) << "sent back to its sender";
  EXPECT_THROW(opens(Session("secret", {"a", "c", "work", "1"}), first), Altered) << "of another connection";
  EXPECT_THROW(opens(Session("guess", greetings), first), Altered);
  EXPECT_EQ(receiver.of_rank.open(first), (Message{"set", "x", "1"}));
  EXPECT_THROW(opens(receiver, first), Altered) << "repeated";
  EXPECT_TRUE(opens(receiver, second));
}

TEST(Endpoint, Parses) {
  const Endpoint endpoint = parse_endpoint("a,10.0.0.1,[fe80::1]:77");
  EXPECT_EQ(endpoint.hosts, (std::vector<std::string>{"a", "10.0.0.1", "fe80::1"}));
  EXPECT_EQ(endpoint.port, 77);
  for (const char* bad : {"", "a", "a:", ":5", "a:70000", "a:-1", "a:5x", "a,,b:5", ",:4"}) {
    EXPECT_THROW(parse_endpoint(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace tandem::dist
