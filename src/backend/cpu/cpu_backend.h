// The CPU's arithmetic. What an op does here is defined in the file of its name; what it should do, in tests/reference.
#pragma once

#include "backend/backend.h"
#include "core/threads.h"

namespace tandem::backend {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : threads_(threads) {}

  std::string description() const override;
  DeviceTraits traits() const override { return {.bf16 = cpu_has_native_bf16()}; }
  MemorySizes memory_sizes() const override;

  void wait() override {}
  void stamp(uint64_t* time) override;
  std::unique_ptr<Recording> record(std::function<void()> body) override;
  std::unique_ptr<Feed> make_feed(size_t bytes) override;
  std::unique_ptr<Outbox> make_outbox(size_t bytes) override;

  Buffer allocate(size_t bytes) override;
  void upload(const View& to, const void* from) override;
  void download(void* to, const ConstView& from) override;

  void run(const op::Any& op) override {
    std::visit([this](const auto& one) { one.run(*this); }, op);
  }

  const Threads& threads() const { return threads_; }  // used by the ops

 private:
  Threads threads_;
};

}  // namespace tandem::backend
