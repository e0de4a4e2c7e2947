// A backend that forwards to another one all that a derived class does not override.
#pragma once

#include "backend/backend.h"

namespace tandem::backend {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(Backend& inner) : inner_(inner) {}

  std::string description() const override { return inner_.description(); }
  DeviceTraits traits() const override { return inner_.traits(); }
  MemorySizes memory_sizes() const override { return inner_.memory_sizes(); }
  void wait() override { inner_.wait(); }
  DeviceStream stream() const override { return inner_.stream(); }
  void stamp(uint64_t* time) override { inner_.stamp(time); }
  std::unique_ptr<Recording> record(std::function<void()> body) override { return inner_.record(std::move(body)); }
  std::unique_ptr<Feed> make_feed(size_t bytes) override { return inner_.make_feed(bytes); }
  std::unique_ptr<Outbox> make_outbox(size_t bytes) override { return inner_.make_outbox(bytes); }
  void set_tuning(bool on) override { inner_.set_tuning(on); }
  std::string algorithms() const override { return inner_.algorithms(); }
  void use_algorithms(const std::string& table, const std::string& name) override {
    inner_.use_algorithms(table, name);
  }
  Buffer allocate(size_t bytes) override { return inner_.allocate(bytes); }
  Buffer allocate_host(size_t bytes) override { return inner_.allocate_host(bytes); }
  void upload(const View& to, const void* from) override { inner_.upload(to, from); }
  void download(void* to, const ConstView& from) override { inner_.download(to, from); }
  void run(const op::Any& op) override { inner_.run(op); }
  void hold_sums(bool on) override { inner_.hold_sums(on); }
  int64_t attention_plan_size(const AttentionShape& shape, int64_t query_rows) const override {
    return inner_.attention_plan_size(shape, query_rows);
  }

 protected:
  Backend& inner_;
};

}  // namespace tandem::backend
