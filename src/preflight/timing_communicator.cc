#include "preflight/timing_communicator.h"

#include "core/error.h"

namespace tandem::preflight {

namespace {

constexpr size_t kMost = 1 << 16;  // messages of a step

}  // namespace

TimingCommunicator::TimingCommunicator(backend::Backend& backend, const dist::Communicator& real)
    : backend_(backend), real_(real), moments_(backend.allocate(kMost * sizeof(uint64_t))) {}

dist::Handle TimingCommunicator::note(double bytes, bool gradients) {
  if (begun_) {
    messages_.clear();
    begun_ = false;
  }
  require(messages_.size() < kMost, "a step of more than {} messages: raise dist.bucket_mb", kMost);
  backend_.stamp(static_cast<uint64_t*>(moments_.data()) + messages_.size());
  messages_.push_back({bytes, gradients, 0});
  return {};
}

std::vector<TimingCommunicator::Message> TimingCommunicator::messages() {
  std::vector<uint64_t> moments(messages_.size());
  if (!moments.empty()) {
    backend_.download(moments.data(), moments_.view(DType::i32, 1, static_cast<int64_t>(2 * moments.size())));
  }
  for (size_t i = 0; i < moments.size(); ++i) {
    messages_[i].ready = moments[i];
  }
  return messages_;
}

}  // namespace tandem::preflight
