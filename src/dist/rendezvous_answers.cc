// The rendezvous server's answers to messages.
#include <algorithm>
#include <climits>

#include "core/error.h"
#include "dist/rendezvous_server.h"

namespace tandem::dist {

using std::chrono::milliseconds;

namespace {

constexpr size_t kMessageLimit = 2U << 20;  // bytes, once the secret is proven
constexpr size_t kStoreLimit = 256U << 20;  // bytes of all values together

std::string name_of(const JoiningRank& rank) { return describe(rank.member.rank, rank.member.host); }

// Properties that must be equal on all ranks.
struct Common {
  const char* name;
  std::string Identity::*member;
  const char* advice;
};
constexpr Common kCommon[] = {
    {"version of the program", &Identity::version, "use the same binary on all hosts (tandem launch --push copies it)"},
    {"config", &Identity::config,
     "use the same config and settings on all hosts (tandem launch --push copies the file)"},
    {"data", &Identity::data, "use the same prepared data on all hosts (tandem launch --push copies it)"},
};

std::string difference(const JoiningRank& a, const JoiningRank& b) {
  for (const auto& [what, member, advice] : kCommon) {
    if (a.identity.*member != b.identity.*member) {
      return fmt::format("{} has another {} ({}) than {} ({}): {}", name_of(a), what, printable(a.identity.*member, 60),
                         name_of(b), printable(b.identity.*member, 60), advice);
    }
  }
  return "";
}

std::string step_of(const std::string& checkpoint) { return checkpoint.substr(0, checkpoint.find(' ')); }

std::string conflict(const JoiningRank& a, const JoiningRank& b) {
  const std::string& own = a.identity.checkpoint;
  const std::string& other = b.identity.checkpoint;
  if (!own.empty() && own != other && step_of(own) == step_of(other)) {
    return fmt::format(
        "{} has another checkpoint of step {} than {} ({} and {}): remove the run directory of one of them", name_of(a),
        printable(step_of(own), 20), name_of(b), printable(own, 60), printable(other, 60));
  }
  if (!a.identity.device.empty() && a.member.host == b.member.host && a.identity.device == b.identity.device) {
    return fmt::format("{} uses the same GPU as {} ({}): start at most as many workers on a host as it has GPUs",
                       name_of(a), name_of(b), printable(a.identity.device, 60));
  }
  return "";
}

// Why the candidate may not join, or "". `present` has an entry for each rank; all are compared with rank 0.
std::string reason_to_refuse(const JoiningRank& candidate, const std::vector<std::optional<JoiningRank>>& present) {
  if (candidate.size != static_cast<int>(present.size())) {
    return fmt::format("{} was given {} as the number of ranks, but rank 0 was given {}", name_of(candidate),
                       candidate.size, present.size());
  }
  for (const auto& other : present) {
    std::string found = other ? conflict(candidate, *other) : "";
    if (found.empty() && other && candidate.member.rank == 0) {
      found = difference(*other, candidate);
    } else if (found.empty() && other && other->member.rank == 0) {
      found = difference(candidate, *other);
    }
    if (!found.empty()) {
      return found;
    }
  }
  return "";
}

JoiningRank to_candidate(const Message& message, int rank) {
  require(message.size() == 11, "a join of {} fields, not 11", message.size());
  return {.member = {.rank = rank,
                     .node = number_of(message[2], 0, INT_MAX),
                     .host = printable(message[3], 255),
                     .address = printable(message[4], 255),
                     .interface = printable(message[5], 64)},
          .identity = {message[6], message[7], message[8], message[9], message[10]},
          .size = number_of(message[1], 1, INT_MAX)};
}

}  // namespace

std::string describe(int rank, const std::string& host) {
  return host.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} on host {}", rank, host);
}

std::string proof_of_rank(const std::string& secret, Message greetings) {
  greetings.insert(greetings.begin(), "rank");
  return proof(secret, greetings);
}

Message to_message(const JoiningRank& candidate) {
  const auto& [member, identity, size] = candidate;
  return {"join",
          std::to_string(size),
          std::to_string(member.node),
          member.host,
          member.address,
          member.interface,
          identity.version,
          identity.config,
          identity.data,
          identity.checkpoint,
          identity.device};
}

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
  const Message greetings{connection.nonce, message[3], message[1], message[2]};
  const auto refuse = [&](const Message& refusal) {
    connection.closing = true;
    send_to(connection, refusal);
  };
  if (!same_proof(message[4], proof_of_rank(secret_, greetings))) {
    strangers_.warn(connection.from);
    return refuse({"refused"});  // sealed, it would let a stranger try secrets
  }
  connection.session = Session(secret_, greetings);
  const int number = number_of(message[2], 0, INT_MAX);
  if (static_cast<size_t>(number) >= ranks_.size()) {
    return refuse({"refused", fmt::format("rank 0 was given {} as the number of ranks, so there is no rank {}",
                                          ranks_.size(), number)});
  }
  Rank& rank = ranks_[number];
  const bool heartbeat = message[1] == "heart";
  if ((heartbeat ? rank.heartbeat : rank.work) != nullptr || joined_[number]) {
    refusals_.push_back(fmt::format("a second process, at {}, claimed to be rank {}", connection.from, number));
    return refuse(
        {"refused", fmt::format("{} is already there: two processes were given the same rank", name_of(number))});
  }
  (heartbeat ? rank.heartbeat : rank.work) = &connection;
  connection.kind = heartbeat ? Connection::Kind::heartbeat : Connection::Kind::work;
  connection.rank = number;
  connection.in.set_limit(kMessageLimit);
  send_to(connection, {"welcome"});
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
  if (message[0] == "join") {
    handle_join(connection, message);
  } else if (message[0] == "set") {
    const std::string& value = field_of(message, 2);
    store_bytes_ += message[1].size() + value.size();
    require(store_bytes_ <= kStoreLimit, "the store exceeds {} MB", kStoreLimit >> 20);
    store_[message[1]] = value;
    send_to(connection, {"ok"});
    answer_gets(Clock::now());
  } else {
    require(message[0] == "get", "'{}' is not a request", printable(message[0], 40));
    connection.wanted = field_of(message, 1);
    connection.wanted_until = from_now(milliseconds(number_of(field_of(message, 2), 0, INT_MAX)));
    answer_gets(Clock::now());
  }
}

void RendezvousServer::handle_join(Connection& connection, const Message& message) {
  JoiningRank candidate = to_candidate(message, connection.rank);
  const std::string& seen = connection.from;
  std::string objection = reason_to_refuse(candidate, joined_);
  if (objection.empty() && candidate.member.address != seen) {
    objection = fmt::format(
        "{} has address {} but connects from {}: it is behind an address translation, so the others cannot reach it",
        describe(connection.rank, candidate.member.host), candidate.member.address, seen);
  }
  joined_[connection.rank] = candidate;
  if (!objection.empty()) {
    return fail_all(objection);
  }
  const auto there = [](const std::optional<JoiningRank>& rank) { return rank.has_value(); };
  const auto connected = [](const Rank& rank) { return rank.heartbeat != nullptr && rank.work != nullptr; };
  if (failure_.empty() && std::ranges::all_of(joined_, there) && std::ranges::all_of(ranks_, connected)) {
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
  for (auto& joined : joined_) {
    RankInfo& member = joined->member;
    if (is_loopback(member.address) && !is_loopback(own)) {
      member.address = own;
      member.interface = interface_of(own);
    }
    group.insert(group.end(), {member.host, member.address, member.interface, std::to_string(member.node)});
  }
  complete_ = true;
  listener_ = Socket();
  for (const Rank& rank : ranks_) {
    send_to(*rank.work, group);
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
