// Workers that have found each other, and that notice when one of them is gone.
//
// Rank 0 runs a small server that the others join (rendezvous_server.h). Every rank has a thread and a socket of its
// own for heartbeats, so that a long collective, a validation or a slow checkpoint is not taken for a death.
//
// When a rank dies, stops, is cut off or calls stop(), every other rank's failure() says who and why within 10 s; what
// its communicators are doing ends with an Error of that text, and so does every later call; the functions given to
// on_failure() run; and a process that has not ended `exit_after` later is ended with the text on standard error.
//
// Functions may be called by one thread at a time, except failure(), on_failure() and stop(), which any may call.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "dist/world.h"

namespace tandem {

// What must agree for ranks to work together. An Error says which of these differs, and on which host.
struct Identity {
  std::string version;     // of the program; equal everywhere
  std::string config;      // hash or text; equal everywhere
  std::string data;        // hash; equal everywhere
  std::string checkpoint;  // "<step> <hash>" or empty; ranks with the same step must have the same hash
  std::string device;      // a GPU's UUID or empty; no two ranks of one host may have the same
};

struct Member {
  int rank = 0;
  int node = 0;
  std::string host;       // its name
  std::string address;    // where the other ranks reach it
  std::string interface;  // the network interface that has this address
  Identity identity;
};

struct TeamOptions {
  std::chrono::milliseconds join_timeout{120'000};          // for all ranks to come
  std::chrono::milliseconds heartbeat{1'000};               // from one beat to the next
  std::chrono::milliseconds silence{6'000};                 // without a beat: dead
  std::chrono::milliseconds collective_timeout{1'800'000};  // the backstop: for the next piece of a collective
  std::chrono::milliseconds exit_after{3'000};  // a process still there so long after a failure is ended; 0: never
};

class Team {
 public:
  virtual ~Team() = default;  // without leave() the others are told that this rank ended early

  int rank() const { return world_.rank; }
  int size() const { return world_.size; }
  int local_rank() const { return world_.local_rank; }
  int local_size() const { return world_.local_size; }
  int node() const { return world_.node; }
  int nodes() const { return world_.nodes; }
  const World& world() const { return world_; }
  const std::vector<Member>& members() const { return members_; }  // by rank
  std::string name_of(int rank) const;                             // "rank 3 on host b"

  // All ranks, over Gloo. Errors name rank and host.
  virtual Communicator& communicator() = 0;

  // Some of the ranks, in this order, over connections of their own: rank i of it is ranks[i]. All of them call this
  // with the same name, which is used once. It lives as long as the team.
  virtual Communicator& add_communicator(const std::string& name, const std::vector<int>& ranks) = 0;

  // Every rank's text, by rank, on all ranks; called by all. At most a megabyte each.
  virtual std::vector<std::string> gather(const std::string& text) = 0;

  // Called once with failure(), from a thread of the team or, after stop(), the one that called it; at once where the
  // team has already failed. It must not wait for the team's other functions.
  virtual void on_failure(std::function<void(const std::string& reason)> action) = 0;

  virtual std::string failure() const = 0;  // empty while all is well

  // Ends the work of all ranks: on all of them failure() becomes "rank R on host H: <reason>". For an error that only
  // this rank has met.
  virtual void stop(const std::string& reason) = 0;

  // The orderly end, called by all: returns when every rank has come here. Afterwards nobody takes a rank's silence for
  // a death, and the communicators are gone.
  virtual void leave() = 0;

 protected:
  World world_;
  std::vector<Member> members_;
};

// Returns when all ranks have joined; throws an Error that names who is missing, or what differs. One rank: no sockets.
std::unique_ptr<Team> join_team(const World& world, const Identity& identity, const TeamOptions& options = {});

// A team of one.
std::unique_ptr<Team> make_single_team(const Identity& identity = {}, const World& world = {});

}  // namespace tandem
