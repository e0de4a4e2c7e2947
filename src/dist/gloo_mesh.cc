#include "dist/gloo_mesh.h"

#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <gloo/transport/unbound_buffer.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/stopwatch.h"
#include "dist/peer_sockets.h"

namespace tandem::dist {
namespace {

constexpr uint64_t kReasonSlot = 0;  // no collective uses these two
constexpr uint64_t kGreetingSlot = 1;
constexpr std::chrono::milliseconds kReasonTime{1000};  // longest time for a peer to receive the reason
// Time for the peers to read it: if a connection is closed while it has unread bytes on this side, the peer loses what
// it has not read yet.
constexpr std::chrono::milliseconds kReadingTime{200};

// Gloo's messages begin with its source file in brackets, and name a peer as " [address]:port", the port with its bytes
// in the wrong order.
std::string in_plain_words(std::string message) {
  const size_t file = message.starts_with("[") ? message.find("] ") : std::string::npos;
  message.erase(0, file == std::string::npos ? 0 : file + 2);
  const size_t peer = message.find(" [");
  const size_t port = message.find("]:", peer);
  if (port != std::string::npos) {
    message.erase(peer, std::min(message.find_first_not_of("0123456789", port + 2), message.size()) - peer);
  }
  return message;
}

namespace tcp = gloo::transport::tcp;

// Gloo's own way to connect, a listening socket for each pair that takes whoever comes first, is passed by: a pair gets
// a connection that PeerPort has made. The device's thread must be held up (HeldDevice): the pair begins with that
// listening socket, and nobody who connects to it may be heard.
struct PairAccess : tcp::Pair {
  static void give(tcp::Pair& pair, Socket socket) {
    const std::lock_guard lock(pair.*&PairAccess::m_);
    ::close(std::exchange(pair.*&PairAccess::fd_, socket.release()));
    (pair.*&PairAccess::handleConnected)();
  }
};

// Holds up the device's thread, which handles the events of its sockets, while this exists.
class HeldDevice final : public tcp::Handler {
 public:
  explicit HeldDevice(tcp::Device& device) : device_(device), event_(eventfd(1, EFD_CLOEXEC)) {
    device_.registerDescriptor(event_.get(), EPOLLIN, this);
    held_.get_future().wait();
  }
  ~HeldDevice() override {
    release_.set_value();
    device_.unregisterDescriptor(event_.get(), this);
  }
  HeldDevice(const HeldDevice&) = delete;
  HeldDevice& operator=(const HeldDevice&) = delete;

  void handleEvents(int) override {
    if (!std::exchange(entered_, true)) {
      held_.set_value();
      release_.get_future().wait();
    }
  }

 private:
  tcp::Device& device_;
  const Socket event_;
  bool entered_ = false;
  std::promise<void> held_, release_;
};

}  // namespace

GlooMesh::GlooMesh(gloo::rendezvous::Store& store, int rank, int size, const std::string& address,
                   std::chrono::milliseconds timeout, const std::string& secret)
    : rank_(rank), size_(size), timeout_(timeout), stop_reasons_(size), stop_reason_channels_(size) {
  for (int distance = 1; distance < size; ++distance) {
    upwards_.push_back((rank + distance) % size);
  }
  downwards_.assign(upwards_.rbegin(), upwards_.rend());
  std::optional<PeerPort> port;
  try {
    port.emplace(rank, size, address, secret);
  } catch (const Error& error) {
    fail("rank {} cannot be reached by its peers at '{}': {}; give an address of this host that they can reach", rank,
         address, error.what());
  }
  const auto published = meet(store, port->published());
  give_to_gloo(port->address(), port->connect_all(published, from_now(timeout)));
  expect_stop_reasons();
  synchronize();
}

GlooMesh::~GlooMesh() = default;

// Returns what every rank publishes.
std::vector<std::vector<char>> GlooMesh::meet(gloo::rendezvous::Store& store, const std::vector<char>& own) {
  const auto key = [](int rank) { return "here-" + std::to_string(rank); };
  const auto deadline = from_now(timeout_);
  try {
    store.set(key(rank_), own);
  } catch (const std::exception& error) {
    fail("rank {} cannot write to the rendezvous: {}", rank_, in_plain_words(error.what()));
  }
  std::vector<std::vector<char>> published;
  for (int peer = 0; peer < size_; ++peer) {
    try {
      store.wait({key(peer)}, std::chrono::milliseconds(std::max(milliseconds_until(deadline), 1)));
      published.push_back(store.get(key(peer)));
    } catch (const std::exception& error) {
      fail("rank {} of {} did not come within {} s (rank {} waited): {}; is it running?", peer, size_,
           to_seconds(timeout_), rank_, in_plain_words(error.what()));
    }
  }
  return published;
}

void GlooMesh::give_to_gloo(const std::string& address, std::vector<Socket> sockets) {
  const auto device = std::make_shared<tcp::Device>(tcp::CreateDeviceAttr(address.c_str()));
  const auto context = std::make_shared<tcp::Context>(device, rank_, size_);
  context->setTimeout(timeout_);
  const HeldDevice held(*device);
  for (const int peer : upwards_) {
    PairAccess::give(dynamic_cast<tcp::Pair&>(*context->createPair(peer)),
                     std::move(sockets[static_cast<size_t>(peer)]));
  }
  context_ = context;
}

void GlooMesh::expect_stop_reasons() {
  for (const int peer : upwards_) {
    StopReason& text = stop_reasons_[peer];
    stop_reason_channels_[peer] = std::make_unique<GlooChannel>(*this, peer, text.data(), text.size());
    stop_reason_channels_[peer]->receive(kReasonSlot, 0, text.size());
  }
}

// Exchanges a byte with every peer, so that nobody closes a connection that another rank is still making.
void GlooMesh::synchronize() {
  what_ = "the greeting";
  std::vector<char> bytes(size_);
  char own = 0;
  std::vector<std::unique_ptr<GlooChannel>> channels;
  for (const int peer : upwards_) {
    channels.push_back(std::make_unique<GlooChannel>(*this, peer, &bytes[peer], 1));
    channels.back()->receive(kGreetingSlot, 0, 1);
    channels.push_back(std::make_unique<GlooChannel>(*this, peer, &own, 1));
    channels.back()->send(kGreetingSlot, 0, 1);
  }
  for (size_t i = 0; i < channels.size(); i += 2) {
    channels[i]->wait_received(0);
    channels[i + 1]->wait_sent(0);
  }
}

// A peer that does not receive it within a second, or is gone, notices the closed connection instead.
void GlooMesh::send_stop_reason(const std::string& reason) {
  StopReason text{};
  reason.copy(text.data(), text.size() - 1);
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> messages(size_);
  const auto for_peers = [&](const auto& action) {
    for (const int peer : upwards_) {
      try {
        action(peer);
      } catch (const std::exception&) {
        messages[peer].reset();
      }
    }
  };
  for_peers([&](int peer) {
    messages[peer] = context_->createUnboundBuffer(text.data(), text.size());
    messages[peer]->send(peer, kReasonSlot);
  });
  for_peers([&](int peer) {
    if (messages[peer]) {
      messages[peer]->waitSend(kReasonTime);
    }
  });
  std::this_thread::sleep_for(kReadingTime);
}

// Why the peer closed its connections, if it sent a reason: then that message arrives before the end of the stream.
std::string GlooMesh::stop_reason_of(int peer) {
  try {
    if (stop_reason_channels_[peer]->buffer_->waitRecv(std::chrono::milliseconds(1))) {
      StopReason& text = stop_reasons_[peer];
      text.back() = 0;
      std::replace_if(
          text.begin(), std::find(text.begin(), text.end(), '\0'), [](char c) { return c > 0 && c < ' '; }, '?');
      return text.data();
    }
  } catch (const std::exception&) {
  }
  return "";
}

void GlooMesh::lose(int peer, const std::string& why) {
  const std::string reason = stop_reason_channels_[peer] ? stop_reason_of(peer) : "";
  stop(
      !reason.empty()
          ? reason
          : fmt::format("rank {} lost rank {} during {}: {}; look at the log of rank {}, and whether all ranks run the "
                        "same work",
                        rank_, peer, what_, in_plain_words(why), peer));
}

// Sends the reason to the peers while the channels of the work still exist: Gloo sends nothing more to a peer that
// waits for data of a channel that is gone.
void GlooMesh::stop(const std::string& reason) {
  abort(reason);
  if (context_ && !std::exchange(sent_stop_reason_, true)) {
    send_stop_reason(failure());
  }
  fail("{}", failure());
}

void GlooMesh::run(const std::string& what, const std::function<void()>& work) {
  what_ = what;
  try {
    if (!failure().empty()) {
      stop(failure());
    }
    work();
  } catch (const std::exception& error) {
    try {
      stop(error.what());
    } catch (const Error&) {
      stop_reason_channels_.clear();
      context_.reset();
      throw;
    }
  }
}

void GlooMesh::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) {
    failure_ = reason;
  }
  for (gloo::transport::UnboundBuffer* buffer : waiting_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

std::string GlooMesh::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

GlooChannel::GlooChannel(GlooMesh& mesh, int peer, void* data, size_t bytes) : mesh_(mesh), peer_(peer) {
  const std::lock_guard lock(mesh_.mutex_);
  buffer_ = mesh_.context_->createUnboundBuffer(data, bytes);
  mesh_.waiting_.insert(buffer_.get());
  if (!mesh_.failure_.empty()) {  // abort() came first; the first wait will end
    buffer_->abortWaitRecv();
    buffer_->abortWaitSend();
  }
}

GlooChannel::~GlooChannel() {
  const std::lock_guard lock(mesh_.mutex_);
  mesh_.waiting_.erase(buffer_.get());
}

// Calls Gloo. An exception (a closed connection, a timeout, a broken invariant) means that the peer is lost; false
// means that abort() woke the call.
template <class Call>
void GlooChannel::guard(const Call& call) {
  bool done = false;
  try {
    done = call();
  } catch (const std::exception& error) {
    mesh_.lose(peer_, error.what());
  }
  if (!done) {
    mesh_.stop(mesh_.failure());
  }
}

void GlooChannel::send(uint64_t slot, size_t offset, size_t bytes) {
  guard([&] {
    buffer_->send(peer_, slot, offset, bytes);
    return true;
  });
}

void GlooChannel::receive(uint64_t slot, size_t offset, size_t bytes) {
  guard([&] {
    buffer_->recv(peer_, slot, offset, bytes);
    return true;
  });
}

void GlooChannel::wait_sent(size_t bytes) {
  guard([&] { return buffer_->waitSend(mesh_.timeout_); });
  mesh_.sent_ += static_cast<int64_t>(bytes);
}

void GlooChannel::wait_received(size_t bytes, bool relayed) {
  guard([&] { return buffer_->waitRecv(relayed ? mesh_.timeout_ * 5 / 4 : mesh_.timeout_); });
  mesh_.received_ += static_cast<int64_t>(bytes);
}

}  // namespace tandem::dist
