#include "dist/rendezvous_server.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "core/error.h"
#include "core/stopwatch.h"
#include "dist/background.h"

namespace tandem::dist {

using std::chrono::milliseconds;

namespace {

constexpr size_t kUnprovenLimit = 1024;   // bytes of a message before the secret is proven
constexpr size_t kMostUnproven = 64;      // connections at a time without a proof
constexpr milliseconds kProofTime{5000};  // to prove the secret
constexpr milliseconds kTick{100};
constexpr milliseconds kFlushTime{1000};
constexpr milliseconds kLateTime{2000};

}  // namespace

RendezvousServer::RendezvousServer(Socket listener, int size, std::string secret, std::vector<std::string> hosts,
                                   ProcessGroupOptions options)
    : listener_(std::move(listener)),
      secret_(std::move(secret)),
      hosts_(std::move(hosts)),
      options_(options),
      join_deadline_(from_now(options.join_timeout)),
      ranks_(size),
      joined_(size),
      last_look_(Clock::now()),
      last_beat_(last_look_) {
  thread_ = start_thread([this] { run(); });
}

RendezvousServer::~RendezvousServer() {
  end_ = true;
  thread_.join();
}

void RendezvousServer::run() {
  Deadline end = Deadline::max();
  while (!end_ || (Clock::now() < end && has_more_to_send())) {
    if (end_) {
      end = std::min(end, from_now(complete_ ? kFlushTime : kLateTime));
    }
    wait_for_events();
    look_at_clock();
    connections_.remove_if([](const Connection& connection) { return !connection.socket.open(); });
  }
}

bool RendezvousServer::has_more_to_send() const {
  const auto unsent = [](const Connection& connection) { return !connection.out.empty(); };
  return std::ranges::any_of(connections_, unsent) ||
         (!complete_ && !failure_.empty() && !std::ranges::all_of(ranks_, &Rank::informed));
}

void RendezvousServer::wait_for_events() {
  std::vector<pollfd> events;
  std::vector<Connection*> of_events;
  for (Connection& connection : connections_) {
    events.push_back(
        {connection.socket.get(), static_cast<short>(connection.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    of_events.push_back(&connection);
  }
  if (listener_.open()) {
    events.push_back({listener_.get(), POLLIN, 0});
  }
  poll(events.data(), events.size(), static_cast<int>(std::min(kTick, options_.heartbeat).count()));
  for (size_t i = 0; i < of_events.size(); ++i) {
    if ((events[i].revents & POLLOUT) != 0) {
      write(*of_events[i]);
    }
    if ((events[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && of_events[i]->socket.open()) {
      read(*of_events[i]);
    }
  }
  if (listener_.open()) {
    accept_all();
  }
}

void RendezvousServer::accept_all() {
  for (Socket socket = accept_from(listener_); socket.open(); socket = accept_from(listener_)) {
    Connection& connection = connections_.emplace_back(std::move(socket), kUnprovenLimit);
    send_to(connection, {kGreeting, connection.nonce});
  }
  const auto unproven = [](const Connection& connection) {
    return connection.socket.open() && connection.kind == Connection::Kind::unproven;
  };
  auto count = static_cast<size_t>(std::ranges::count_if(connections_, unproven));
  for (auto oldest = connections_.begin(); count > kMostUnproven; ++oldest) {
    if (unproven(*oldest)) {
      close(*oldest);
      --count;
    }
  }
}

void RendezvousServer::send_to(Connection& connection, const Message& message) {
  connection.out += encode(connection.session.of_server.close(message));
  write(connection);
}

void RendezvousServer::write(Connection& connection) {
  while (connection.socket.open() && !connection.out.empty()) {
    const ssize_t sent =
        send(connection.socket.get(), connection.out.data(), connection.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      connection.out.erase(0, static_cast<size_t>(sent));
    } else if (sent < 0 && errno == EINTR) {
      continue;
    } else {
      if (errno != EAGAIN) {
        connection.out.clear();  // the peer is gone; read() will notice
      }
      return;
    }
  }
  if (connection.closing && connection.out.empty()) {
    close(connection);
  }
}

void RendezvousServer::read(Connection& connection) {
  char bytes[16384];
  try {
    while (connection.socket.open()) {
      const ssize_t count = recv(connection.socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count < 0 && errno == EAGAIN) {
        return;
      }
      if (count <= 0) {
        close(connection);
        return;
      }
      connection.last_heard = Clock::now();
      connection.in.add({bytes, static_cast<size_t>(count)});
      while (auto message = connection.in.next()) {
        handle(connection, connection.session.of_rank.open(*std::move(message)));
      }
    }
  } catch (const Error& error) {  // the peer broke the protocol
    if (connection.kind != Connection::Kind::unproven) {
      fail_all(fmt::format("{} sent an invalid message: {}", name_of(connection.rank), error.what()));
    }
    close(connection);
  }
}

// A heartbeat connection that closes before its rank has left means that the rank died.
void RendezvousServer::close(Connection& connection) {
  if (!connection.socket.open()) {
    return;
  }
  connection.socket = Socket();
  connection.out.clear();
  if (connection.kind == Connection::Kind::unproven) {
    strangers_.warn(connection.from);
    return;
  }
  Rank& rank = ranks_[connection.rank];
  if (&connection == rank.work) {
    rank.work = nullptr;
  }
  if (&connection == rank.heartbeat) {
    rank.heartbeat = nullptr;
    if (!rank.left && !all_left()) {
      fail_all(fmt::format("{} is gone: its connection closed; its process ended or was killed (look at its log)",
                           name_of(connection.rank)));
    }
  }
}

void RendezvousServer::look_at_clock() {
  const auto now = Clock::now();
  for (Connection& connection : connections_) {
    if (connection.kind == Connection::Kind::unproven && now - connection.since > kProofTime) {
      close(connection);
    }
  }
  answer_gets(now);
  if (!complete_ && now > join_deadline_) {
    fail_all(describe_missing());
  }
  look_for_silence(now);
  if (now - last_beat_ >= options_.heartbeat) {
    last_beat_ = now;
    for (const Rank& rank : ranks_) {
      if (rank.heartbeat != nullptr && failure_.empty()) {
        send_to(*rank.heartbeat, {"beat"});
      }
    }
  }
}

// Called after all input has been read. If this thread itself did not run for so long, rank 0 was stopped, and the
// other ranks took it for dead.
void RendezvousServer::look_for_silence(Deadline now) {
  const auto missed = now - std::exchange(last_look_, now);
  if (missed > options_.silence) {
    fail_all(fmt::format("{} was stopped for {:.0f} s", name_of(0), to_seconds(missed)));
  }
  for (size_t number = 0; number < ranks_.size(); ++number) {
    Connection* heartbeat = ranks_[number].heartbeat;
    if (heartbeat == nullptr || ranks_[number].left) {
      continue;
    }
    if (now - heartbeat->last_heard > options_.silence) {
      fail_all(fmt::format("{} has been silent for {:.0f} s: it is stopped, or cut off from the network",
                           name_of(static_cast<int>(number)), to_seconds(options_.silence)));
      return;
    }
  }
}

std::string RendezvousServer::describe_missing() const {
  std::vector<std::string> missing;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!joined_[rank] || ranks_[rank].heartbeat == nullptr || ranks_[rank].work == nullptr) {
      missing.push_back(name_of(static_cast<int>(rank)));
    }
  }
  std::string text = fmt::format("{} of {} did not come within {:.0f} s; {} running, and can {} host reach rank 0?",
                                 fmt::join(missing, ", "), ranks_.size(), to_seconds(options_.join_timeout),
                                 missing.size() == 1 ? "is it" : "are they", missing.size() == 1 ? "its" : "each");
  for (const std::string& refusal : refusals_) {
    text += fmt::format(" ({})", refusal);
  }
  return text;
}

void RendezvousServer::fail_all(const std::string& reason) {
  if (!failure_.empty() || all_left()) {
    return;
  }
  failure_ = reason;  // ranks that come later receive it too
  for (Rank& rank : ranks_) {
    send_failure(rank);
  }
}

void RendezvousServer::send_failure(Rank& rank) {
  if (rank.heartbeat != nullptr) {
    rank.informed = true;
    send_to(*rank.heartbeat, {"failure", failure_});
  }
}

std::string RendezvousServer::name_of(int rank) const {
  const auto number = static_cast<size_t>(rank);
  return describe(rank, joined_[number] ? joined_[number]->member.host : number < hosts_.size() ? hosts_[number] : "");
}

bool RendezvousServer::all_left() const { return std::ranges::all_of(ranks_, &Rank::left); }

}  // namespace tandem::dist
