#include "dist/gloo_mesh.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <net/if.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/stopwatch.h"
#include "dist/socket.h"

namespace tandem::dist {
namespace {

constexpr uint64_t kReasonSlot = 0;  // no collective uses these two
constexpr uint64_t kGreetingSlot = 1;
constexpr std::chrono::milliseconds kReasonTime{1000};  // longest time for a peer to receive the reason
// Time for the peers to read it: if a connection is closed while it has unread bytes on this side, the peer loses what
// it has not read yet.
constexpr std::chrono::milliseconds kReadingTime{200};

// Gloo's messages begin with its source file in brackets.
std::string without_source_file(const std::string& message) {
  const size_t end = message.find("] ");
  return message.starts_with("[") && end != std::string::npos ? message.substr(end + 2) : message;
}

}  // namespace

GlooMesh::GlooMesh(gloo::rendezvous::Store& store, int rank, int size, const std::string& address,
                   std::chrono::milliseconds timeout)
    : rank_(rank), size_(size), timeout_(timeout), stop_reasons_(size), stop_reason_channels_(size) {
  for (int distance = 1; distance < size; ++distance) {
    upwards_.push_back((rank + distance) % size);
  }
  downwards_.assign(upwards_.rbegin(), upwards_.rend());
  meet(store);
  connect(store, address);
  expect_stop_reasons();
  synchronize();
}

GlooMesh::~GlooMesh() = default;

// Waits for every rank by name before Gloo waits for all of them without naming any.
void GlooMesh::meet(gloo::rendezvous::Store& store) {
  const auto key = [](int rank) { return "here-" + std::to_string(rank); };
  const auto deadline = from_now(timeout_);
  try {
    store.set(key(rank_), {'1'});
  } catch (const std::exception& error) {
    fail("rank {} cannot write to the rendezvous: {}", rank_, without_source_file(error.what()));
  }
  for (int peer = 0; peer < size_; ++peer) {
    try {
      store.wait({key(peer)}, std::chrono::milliseconds(std::max(milliseconds_until(deadline), 1)));
    } catch (const std::exception& error) {
      fail("rank {} of {} did not come within {} s (rank {} waited): {}; is it running?", peer, size_,
           to_seconds(timeout_), rank_, without_source_file(error.what()));
    }
  }
}

void GlooMesh::connect(gloo::rendezvous::Store& store, const std::string& address) {
  gloo::transport::tcp::attr where;
  try {
    if (if_nametoindex(address.c_str()) != 0) {
      where.iface = address;
    } else {
      require_host(address);  // Gloo reads getaddrinfo's result even if it failed, so a bad name must not reach it
      where.hostname = address;
    }
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(where);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank_, size_);
    context->setTimeout(timeout_);
    gloo::rendezvous::PrefixStore addresses("mesh", store);
    context->connectFullMesh(addresses, device);
    context_ = std::move(context);
  } catch (const std::exception& error) {
    fail("rank {} cannot connect to its peers from address '{}': {}; give an address of this host that they can reach",
         rank_, address, without_source_file(error.what()));
  }
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
                        rank_, peer, what_, without_source_file(why), peer));
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
