#include "dist/rendezvous_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "dist/rendezvous_server.h"

namespace tandem::dist {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kConnectTime{2000};   // to connect to one address
constexpr milliseconds kGreetingTime{3000};  // longest wait for the greeting, if there are other addresses to try
constexpr milliseconds kBetweenRounds{200};  // rank 0 may not listen yet
constexpr milliseconds kSendTime{5000};      // to hand a message to the system
constexpr size_t kAnswerLimit = 256U << 20;  // bytes: the list of many ranks

class Refused : public Error {
 public:
  using Error::Error;
};

void wait_for(const Socket& socket, short events, Deadline deadline) {
  pollfd event{socket.get(), events, 0};
  poll(&event, 1, milliseconds_until(deadline));
}

}  // namespace

RendezvousClient::RendezvousClient(const World& world, const std::string& purpose, Deadline deadline,
                                   const std::function<bool()>& cancelled)
    : in_(kAnswerLimit) {
  const Endpoint endpoint = parse_endpoint(world.rendezvous);
  std::string last = "no address";
  while (true) {
    std::string refusal;
    for (const std::string& host : endpoint.hosts) {
      const auto until = endpoint.hosts.size() > 1 ? std::min(deadline, from_now(kGreetingTime)) : deadline;
      try {
        if (try_address(world, host, endpoint.port, purpose, until)) {
          return;
        }
        last = fmt::format("{}:{} does not answer", host, endpoint.port);
      } catch (const Refused& error) {
        refusal = error.what();
      } catch (const Error& error) {
        last = error.what();
      }
    }
    require(refusal.empty(), "rank {} on host {} cannot join: {}", world.rank, world.host, refusal);
    require(from_now(kBetweenRounds) < deadline && !cancelled(),
            "rank {} on host {} cannot reach rank 0 at {} ({}): is rank 0 running, and does a firewall close the port?",
            world.rank, world.host, world.rendezvous, last);
    std::this_thread::sleep_for(kBetweenRounds);
  }
}

// Returns false if nothing came in time. Throws Refused if trying this server again is pointless.
bool RendezvousClient::try_address(const World& world, const std::string& host, int port, const std::string& purpose,
                                   Deadline deadline) {
  socket_ = connect_to(host, port, std::min(deadline, from_now(kConnectTime)));
  in_ = MessageReader(4096);
  session_ = Session();
  const std::string where = fmt::format("the server at {}:{}", host, port);
  std::optional<Message> greeting;
  try {
    greeting = receive(deadline);
  } catch (const Error& error) {
    fail("{} is not a rendezvous of tandem: {}", where, error.what());
  }
  if (!greeting) {
    return false;
  }
  if (greeting->size() != 2 || greeting->front() != kGreeting) {
    throw Refused(where + " is not a rendezvous of this version of tandem");
  }
  const std::string nonce = random_token();
  const std::string rank = std::to_string(world.rank);
  const Message greetings{greeting->at(1), nonce, purpose, rank};
  send({"hello", purpose, rank, nonce, proof_of_rank(world.secret, greetings)});
  session_ = Session(world.secret, greetings);
  std::optional<Message> answer;
  try {
    answer = receive(deadline);
  } catch (const Altered&) {
    throw Refused(
        fmt::format("the secret is wrong: {} knows another one; all ranks of a run need the same "
                    "TANDEM_SECRET, or come from one launcher",
                    where));
  }
  if (!answer) {
    return false;
  }
  if (answer->front() != "welcome") {
    throw Refused(printable(field_of(*answer, 1)));
  }
  in_.set_limit(kAnswerLimit);
  return true;
}

void RendezvousClient::send(const Message& message) {
  const std::string bytes = encode(session_.of_rank.close(message));
  const auto deadline = from_now(kSendTime);
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else {
      require(errno == EAGAIN || errno == EINTR, "the connection to the rendezvous failed: {}", std::strerror(errno));
      require(Clock::now() < deadline, "the rendezvous does not accept messages");
      wait_for(socket_, POLLOUT, deadline);
    }
  }
}

std::optional<Message> RendezvousClient::receive(Deadline deadline) {
  while (true) {
    if (auto message = in_.next()) {
      return session_.of_server.open(*std::move(message));
    }
    char bytes[16384];
    const ssize_t count = recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    require(count != 0, "the connection to the rendezvous is closed");
    if (count > 0) {
      in_.add({bytes, static_cast<size_t>(count)});
    } else {
      require(errno == EAGAIN || errno == EINTR, "the connection to the rendezvous failed: {}", std::strerror(errno));
      if (Clock::now() >= deadline) {
        return std::nullopt;
      }
      wait_for(socket_, POLLIN, deadline);
    }
  }
}

Message RendezvousClient::ask(const Message& request, Deadline deadline) {
  send(request);
  auto answer = receive(deadline);
  require(answer.has_value(), "the rendezvous does not answer");
  return *std::move(answer);
}

}  // namespace tandem::dist
