// The server at which ranks meet: runs beside rank 0, on one thread that never waits for anybody.
//
// Every rank has two connections: "work" (it joins, and stores addresses for the others) and "heart" (it sends
// heartbeats). Both begin with a proof of the secret, due within seconds; any other connection to the port is
// closed and forgotten. The port is closed once all ranks have joined. The first failure is sent to all ranks as their
// last message.
//
// Messages, server's first:
//   {"tandem rendezvous 2", nonce}
//                     {"hello", "work" or "heart", rank, nonce, proof}
//   {"welcome"} or {"refused", reason}
// From the server's answer on, every message has a seal (message.h) as its last field, which is left out here; a rank
// whose proof is wrong gets {"refused"} without one. docs/formats.md says why.
// work:               {"join", ...} (to_message())     {"group", host, address, interface and node of rank 0, of
//                                                       rank 1, ...} once all have joined
//                     {"set", key, value}              {"ok"}
//                     {"get", key, milliseconds}       {"value", value} once it is set, or {"late"}
// heart:              {"beat"}, {"stop", reason}, {"leave"}
//   {"beat"}, {"failure", reason}, {"left"} when all have left
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <optional>
#include <thread>

#include "dist/message.h"
#include "dist/process_group.h"
#include "dist/socket.h"

namespace tandem::dist {

inline constexpr const char* kGreeting = "tandem rendezvous 2";

// A rank's proof over {server's nonce, rank's nonce, purpose, rank}.
std::string proof_of_rank(const std::string& secret, Message greetings);

// A rank's description of itself when it joins.
struct JoiningRank {
  RankInfo member;
  Identity identity;
  int size = 0;  // the number of ranks that it was given
};

Message to_message(const JoiningRank& candidate);

std::string describe(int rank, const std::string& host);  // "rank 3 on host b"

class RendezvousServer {
 public:
  // `hosts` by rank, if known.
  RendezvousServer(Socket listener, int size, std::string secret, std::vector<std::string> hosts,
                   ProcessGroupOptions options);
  // Sends the remaining messages for a second at most, or for two if the process group failed before it was complete,
  // so that ranks that come too late receive the reason.
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

 private:
  // One connection as the server sees it.
  struct Connection {
    enum class Kind { unproven, work, heartbeat };

    Connection(Socket connected, size_t limit) : socket(std::move(connected)), in(limit), nonce(random_token()) {}

    Socket socket;
    MessageReader in;
    Session session;
    std::string out;  // bytes to send
    std::string nonce;
    std::string from = peer_address(socket);
    Kind kind = Kind::unproven;
    int rank = -1;
    Deadline since = Clock::now();
    Deadline last_heard = since;
    std::optional<std::string> wanted;  // the key that the peer waits for
    Deadline wanted_until;
    bool closing = false;  // it is closed once `out` is sent
  };

  struct Rank {
    Connection* work = nullptr;
    Connection* heartbeat = nullptr;
    bool left = false;
    bool informed = false;  // the failure was sent
  };

  void run();
  void wait_for_events();
  void accept_all();
  void read(Connection& connection);
  void write(Connection& connection);
  void send_to(Connection& connection, const Message& message);
  void close(Connection& connection);
  void handle(Connection& connection, const Message& message);
  void handle_hello(Connection& connection, const Message& message);
  void handle_work(Connection& connection, const Message& message);
  void handle_heartbeat(Connection& connection, const Message& message);
  void handle_join(Connection& connection, const Message& message);
  void answer_gets(Deadline now);
  void look_at_clock();
  void look_for_silence(Deadline now);
  void complete_group();
  std::string describe_missing() const;
  void fail_all(const std::string& reason);
  std::string name_of(int rank) const;
  void send_failure(Rank& rank);
  bool all_left() const;
  bool has_more_to_send() const;

  Socket listener_;
  const std::string secret_;
  const std::vector<std::string> hosts_;
  const ProcessGroupOptions options_;
  const Deadline join_deadline_;
  std::list<Connection> connections_;
  std::vector<Rank> ranks_;
  std::vector<std::optional<JoiningRank>> joined_;
  std::map<std::string, std::string> store_;
  size_t store_bytes_ = 0;
  std::vector<std::string> refusals_;  // joins that were refused, for describe_missing()
  Strangers strangers_;
  bool complete_ = false;
  std::string failure_;
  Deadline last_look_;
  Deadline last_beat_;
  std::atomic<bool> end_ = false;
  std::thread thread_;
};

}  // namespace tandem::dist
