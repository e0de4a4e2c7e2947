#include "dist/peer_sockets.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <list>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/parse.h"
#include "dist/background.h"
#include "dist/message.h"

namespace tandem::dist {

using std::chrono::milliseconds;

namespace {

constexpr size_t kRankDigits = 10;
constexpr size_t kProof = 32;               // bytes
constexpr size_t kMostGuests = 64;          // connections at a time that have proven nothing, beside one of each rank
constexpr milliseconds kGuestTime{5000};    // to prove the secret
constexpr milliseconds kConnectTime{5000};  // for one try
constexpr milliseconds kBetweenTries{20};
constexpr milliseconds kTick{100};

std::string address_of(const std::string& name) {
  for (const InterfaceAddress& own : own_addresses()) {
    if (own.interface == name && own.up) {
      return own.address;
    }
  }
  return name;
}

// Appends what has come, up to `most` bytes in all. Returns false once the connection is closed.
bool receive_some(const Socket& socket, std::string& bytes, size_t most) {
  char some[256];
  const ssize_t count = recv(socket.get(), some, std::min(most - bytes.size(), sizeof some), MSG_DONTWAIT);
  if (count > 0) {
    bytes.append(some, static_cast<size_t>(count));
  }
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

// A message of these few bytes fits into the buffer of a new connection.
void send_all(const Socket& socket, const std::string& bytes) {
  require(
      send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size()),
      "{}", std::strerror(errno));
}

}  // namespace

struct PeerPort::Guest {
  Socket socket;
  std::string from = peer_address(socket);
  std::string bytes = {};
  Deadline until = from_now(kGuestTime);
};

PeerPort::PeerPort(int rank, int size, const std::string& address, std::string secret)
    : rank_(rank),
      size_(size),
      address_(address_of(address)),
      secret_(std::move(secret)),
      nonce_(random_token()),
      listener_(listen_at(address_)),
      sockets_(static_cast<size_t>(size)) {}

std::vector<char> PeerPort::published() const {
  const std::string bytes = encode({address_, std::to_string(port_of(listener_)), nonce_});
  return {bytes.begin(), bytes.end()};
}

std::vector<Socket> PeerPort::connect_all(const std::vector<std::vector<char>>& published, Deadline deadline) {
  for (const std::vector<char>& bytes : published) {
    MessageReader reader(bytes.size());
    reader.add({bytes.data(), bytes.size()});
    const Message peer = reader.next().value_or(Message{"nothing"});
    peers_.push_back({peer[0], number_of(field_of(peer, 1), 1, 65535), field_of(peer, 2)});
  }
  std::exception_ptr accepting;
  std::exception_ptr connecting;
  std::thread acceptor = start_thread([&] {
    try {
      accept_above(deadline);
    } catch (...) {
      accepting = std::current_exception();
    }
  });
  std::vector<Socket> below;
  try {
    for (int peer = 0; peer < rank_; ++peer) {
      below.push_back(connect_below(peer, deadline));
    }
  } catch (...) {
    connecting = std::current_exception();
  }
  acceptor.join();
  for (const std::exception_ptr& failed : {connecting, accepting}) {
    if (failed) {
      std::rethrow_exception(failed);
    }
  }
  std::ranges::move(below, sockets_.begin());
  return std::move(sockets_);
}

// Both nonces are new for every start, so a proof is of no use anywhere else.
std::string PeerPort::proof_of(const char* what, int from, int to) const {
  return proof(secret_, {what, std::to_string(from), peers_[static_cast<size_t>(from)].nonce, std::to_string(to),
                         peers_[static_cast<size_t>(to)].nonce});
}

// Tries again if the connection breaks before the answer: among many strangers the peer may have closed it.
Socket PeerPort::connect_below(int peer, Deadline deadline) const {
  const Peer& there = peers_[static_cast<size_t>(peer)];
  const std::string expected = proof_of("peer below", rank_, peer);
  while (true) {
    std::string why = "the connection was closed";
    try {
      Socket socket = connect_to(there.address, there.port, std::min(deadline, from_now(kConnectTime)), Use::bulk);
      send_all(socket, fmt::format("{:0{}}", rank_, kRankDigits) + proof_of("peer above", rank_, peer));
      std::string answer;
      while (answer.size() < kProof && Clock::now() < deadline && receive_some(socket, answer, kProof)) {
        pollfd event{socket.get(), POLLIN, 0};
        poll(&event, 1, answer.size() < kProof ? static_cast<int>(kTick.count()) : 0);
      }
      if (same_proof(answer, expected)) {
        return socket;
      }
    } catch (const Error& error) {
      why = error.what();
    }
    require(from_now(kBetweenTries) < deadline, "rank {} cannot connect to rank {} at {}:{}: {}", rank_, peer,
            there.address, there.port, why);
    std::this_thread::sleep_for(kBetweenTries);
  }
}

// Returns whether the guest still is one: it is neither a rank nor a stranger yet.
bool PeerPort::greet(Guest& guest) {
  constexpr size_t kHello = kRankDigits + kProof;
  const bool open = receive_some(guest.socket, guest.bytes, kHello);
  if (guest.bytes.size() < kHello) {
    return open && Clock::now() < guest.until;
  }
  const int peer = parse_number<int>(std::string_view(guest.bytes).substr(0, kRankDigits)).value_or(-1);
  if (peer > rank_ && peer < size_ &&
      same_proof(guest.bytes.substr(kRankDigits), proof_of("peer above", peer, rank_))) {
    try {
      send_all(guest.socket, proof_of("peer below", peer, rank_));
      sockets_[static_cast<size_t>(peer)] = std::move(guest.socket);
    } catch (const Error&) {  // it has closed the connection, and connects again
      guest.socket = Socket();
    }
    guest.from.clear();
  }
  return false;
}

void PeerPort::accept_above(Deadline deadline) {
  std::list<Guest> guests;
  Strangers strangers;
  const auto missing = [&] {
    return std::find_if(sockets_.begin() + rank_ + 1, sockets_.end(), [](const Socket& s) { return !s.open(); });
  };
  while (missing() != sockets_.end()) {
    require(Clock::now() < deadline, "rank {} did not connect to rank {} in time", missing() - sockets_.begin(), rank_);
    std::vector<pollfd> events{{listener_.get(), POLLIN, 0}};
    for (const Guest& guest : guests) {
      events.push_back({guest.socket.get(), POLLIN, 0});
    }
    poll(events.data(), events.size(), static_cast<int>(kTick.count()));
    for (Socket socket = accept_from(listener_, Use::bulk); socket.open(); socket = accept_from(listener_, Use::bulk)) {
      guests.push_back({std::move(socket)});
    }
    for (auto guest = guests.begin(); guest != guests.end();) {
      const bool too_many = guests.size() > kMostGuests + sockets_.size();
      if (greet(*guest) && !too_many) {
        ++guest;
        continue;
      }
      strangers.warn(guest->from);
      guest = guests.erase(guest);
    }
  }
}

}  // namespace tandem::dist
