#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include "dist/gloo_mesh.h"

namespace tandem::dist {

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
