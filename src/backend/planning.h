// A backend that computes nothing: given the same ops as a real one, it shows how much memory they need before any is
// allocated. Its addresses must not be dereferenced.
#pragma once

#include "backend/backend.h"

namespace tandem::backend {

class PlanningBackend final : public Backend {
 public:
  // Reports the traits and sizes of `model`, so that the work has the same shape.
  explicit PlanningBackend(const Backend& model) : model_(model) {}

  std::string description() const override { return "planning for " + model_.description(); }
  DeviceTraits traits() const override { return model_.traits(); }
  MemorySizes memory_sizes() const override { return model_.memory_sizes(); }

  void wait() override {}
  void stamp(uint64_t*) override {}
  std::unique_ptr<Recording> record(std::function<void()>) override { return nullptr; }
  std::unique_ptr<Feed> make_feed(size_t) override { return nullptr; }
  std::unique_ptr<Outbox> make_outbox(size_t) override { return nullptr; }

  Buffer allocate(size_t bytes) override {
    allocated_ += bytes;
    return Buffer(&place_, bytes, Memory::device, [](void*) {});
  }
  size_t allocated() const { return allocated_; }  // bytes allocated so far
  void upload(const View&, const void*) override {}
  void download(void*, const ConstView&) override {}
  void run(const op::Any&) override {}
  int64_t attention_plan_size(const AttentionShape& shape, int64_t query_rows) const override {
    return model_.attention_plan_size(shape, query_rows);
  }

 private:
  alignas(4096) static inline char place_ = 0;  // only its address is used

  const Backend& model_;
  size_t allocated_ = 0;
};

}  // namespace tandem::backend
