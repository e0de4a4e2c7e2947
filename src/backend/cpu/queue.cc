// On a CPU every call completes before it returns: a recording is its body, and data and results are copied at once.
#include <chrono>
#include <cstring>
#include <deque>
#include <vector>

#include "backend/cpu/cpu_backend.h"

namespace tandem::backend {

namespace {

class Body : public Recording {
 public:
  explicit Body(std::function<void()> body) : body_(std::move(body)) {}
  void run() override { body_(); }

 private:
  std::function<void()> body_;
};

class HostFeed : public Feed {
 public:
  explicit HostFeed(Buffer block) : block_(std::move(block)) {}
  std::span<std::byte> next() override { return {static_cast<std::byte*>(block_.data()), block_.bytes()}; }
  void send() override {}
  void* block() const override { return block_.data(); }

 private:
  Buffer block_;
};

class HostOutbox : public Outbox {
 public:
  explicit HostOutbox(Buffer block) : block_(std::move(block)) {}
  void post() override {
    const auto* begin = static_cast<const std::byte*>(block_.data());
    posted_.emplace_back(begin, begin + block_.bytes());
  }
  size_t waiting() const override { return posted_.size(); }
  void take(void* to) override {
    require(!posted_.empty(), "no result waits to be taken");
    std::memcpy(to, posted_.front().data(), block_.bytes());
    posted_.pop_front();
  }
  void* block() const override { return block_.data(); }

 private:
  Buffer block_;
  std::deque<std::vector<std::byte>> posted_;
};

}  // namespace

void CpuBackend::stamp(uint64_t* time) {
  *time = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

std::unique_ptr<Recording> CpuBackend::record(std::function<void()> body) {
  return std::make_unique<Body>(std::move(body));
}

std::unique_ptr<Feed> CpuBackend::make_feed(size_t bytes) { return std::make_unique<HostFeed>(allocate(bytes)); }

std::unique_ptr<Outbox> CpuBackend::make_outbox(size_t bytes) { return std::make_unique<HostOutbox>(allocate(bytes)); }

}  // namespace tandem::backend
