// The rendezvous server's answers to messages.
#include <algorithm>
#include <climits>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "dist/rendezvous_connection.h"

namespace tandem::dist {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr size_t kMessageLimit = 2U << 20;  // bytes, once the secret is proven
constexpr int kMostWarnings = 3;            // log at most so many wrong secrets
constexpr size_t kStoreLimit = 256U << 20;  // bytes of all values together

}  // namespace

void RendezvousServer::handle(Connection& connection, const Message& message) {
  if (connection.closing) {
    return;
  }
  switch (connection.kind) {
    case Connection::Kind::unproven:
      return handle_hello(connection, message);
    case Connection::Kind::work:
      return handle_work(connection, message);
    case Connection::Kind::heartbeat:
      return handle_heartbeat(connection, message);
  }
}

void RendezvousServer::handle_hello(Connection& connection, const Message& message) {
  require(message.size() == 5 && message[0] == "hello", "not a greeting");
  const auto refuse = [&](const std::string& reason) {
    connection.closing = true;
    send_to(connection, {"refused", reason});
  };
  if (!same_proof(message[4], proof(secret_, {"rank", connection.nonce, message[3], message[1], message[2]}))) {
    if (++wrong_secrets_ <= kMostWarnings) {
      log::warning("a process at {} was refused: it does not know the secret of this run", connection.from);
    }
    return refuse("the secret is wrong: all ranks of a run need the same TANDEM_SECRET, or come from one launcher");
  }
  const int number = number_of(message[2], 0, INT_MAX);
  if (static_cast<size_t>(number) >= ranks_.size()) {
    return refuse(
        fmt::format("rank 0 was given {} as the number of ranks, so there is no rank {}", ranks_.size(), number));
  }
  Rank& rank = ranks_[number];
  const bool heartbeat = message[1] == "heart";
  if ((heartbeat ? rank.heartbeat : rank.work) != nullptr || infos_[number]) {
    refusals_.push_back(fmt::format("a second process, at {}, claimed to be rank {}", connection.from, number));
    return refuse(fmt::format("{} is already there: two processes were given the same rank", name_of(number)));
  }
  (heartbeat ? rank.heartbeat : rank.work) = &connection;
  connection.kind = heartbeat ? Connection::Kind::heartbeat : Connection::Kind::work;
  connection.rank = number;
  connection.in.set_limit(kMessageLimit);
  send_to(connection, {"welcome", proof(secret_, {"server", message[3], connection.nonce})});
  if (heartbeat && !failure_.empty()) {
    send_failure(rank);
  }
}

void RendezvousServer::handle_heartbeat(Connection& connection, const Message& message) {
  if (message[0] == "stop") {
    fail_all(printable(field_of(message, 1)));
  } else if (message[0] == "leave") {
    ranks_[connection.rank].left = true;
    if (all_left() && failure_.empty()) {
      for (const Rank& rank : ranks_) {
        if (rank.heartbeat != nullptr) {
          send_to(*rank.heartbeat, {"left"});
        }
      }
    }
  } else {
    require(message[0] == "beat", "'{}' is not a heartbeat", printable(message[0], 40));
  }
}

void RendezvousServer::handle_work(Connection& connection, const Message& message) {
  Rank& rank = ranks_[connection.rank];
  if (message[0] == "join") {
    handle_join(connection, message);
  } else if (message[0] == "set") {
    const std::string& value = field_of(message, 2);
    store_bytes_ += message[1].size() + value.size();
    require(store_bytes_ <= kStoreLimit, "the store exceeds {} MB", kStoreLimit >> 20);
    store_[message[1]] = value;
    send_to(connection, {"ok"});
    answer_gets(steady_clock::now());
  } else if (message[0] == "get") {
    connection.wanted = field_of(message, 1);
    connection.wanted_until = steady_clock::now() + milliseconds(number_of(field_of(message, 2), 0, INT_MAX));
    answer_gets(steady_clock::now());
  } else {
    require(message[0] == "gather", "'{}' is not a request", printable(message[0], 40));
    rank.gathered = field_of(message, 1);
    answer_gather();
  }
}

void RendezvousServer::handle_join(Connection& connection, const Message& message) {
  JoiningRank candidate = to_candidate(message, connection.rank);
  const std::string& seen = connection.from;
  std::string objection = reason_to_refuse(candidate, infos_);
  if (objection.empty() && candidate.member.address != seen) {
    objection = fmt::format(
        "{} has address {} but connects from {}: it is behind an address translation, so the others cannot reach it",
        describe(connection.rank, candidate.member.host), candidate.member.address, seen);
  }
  infos_[connection.rank] = candidate.member;
  if (!objection.empty()) {
    return fail_all(objection);
  }
  const auto there = [](const std::optional<RankInfo>& member) { return member.has_value(); };
  const auto connected = [](const Rank& rank) { return rank.heartbeat != nullptr && rank.work != nullptr; };
  if (failure_.empty() && std::all_of(infos_.begin(), infos_.end(), there) &&
      std::all_of(ranks_.begin(), ranks_.end(), connected)) {
    complete_group();
  }
}

// Ranks that joined over the loopback are on rank 0's host; other hosts reach them at the address at which they reached
// rank 0.
void RendezvousServer::complete_group() {
  std::string own;
  for (const Rank& rank : ranks_) {
    const std::string local = local_address(rank.work->socket);
    own = own.empty() || is_loopback(own) ? local : own;
  }
  Message group{"group"};
  for (auto& member : infos_) {
    if (is_loopback(member->address) && !is_loopback(own)) {
      member->address = own;
      member->interface = interface_of(own);
    }
    group.insert(group.end(), {member->host, member->address, member->interface, member->identity.checkpoint,
                               member->identity.device, std::to_string(member->node)});
  }
  complete_ = true;
  listener_ = Socket();
  for (const Rank& rank : ranks_) {
    send_to(*rank.work, group);
  }
}

void RendezvousServer::answer_gather() {
  const auto came = [](const Rank& rank) { return rank.gathered.has_value(); };
  if (!std::all_of(ranks_.begin(), ranks_.end(), came)) {
    return;
  }
  Message all{"gathered"};
  for (Rank& rank : ranks_) {
    all.push_back(*std::exchange(rank.gathered, std::nullopt));
  }
  for (const Rank& rank : ranks_) {
    if (rank.work != nullptr) {
      send_to(*rank.work, all);
    }
  }
}

void RendezvousServer::answer_gets(Deadline now) {
  for (Connection& connection : connections_) {
    if (!connection.wanted) {
      continue;
    }
    if (const auto found = store_.find(*connection.wanted); found != store_.end()) {
      connection.wanted.reset();
      send_to(connection, {"value", found->second});
    } else if (now >= connection.wanted_until) {
      connection.wanted.reset();
      send_to(connection, {"late"});
    }
  }
}

}  // namespace tandem::dist
