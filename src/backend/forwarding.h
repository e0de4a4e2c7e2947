// A backend in front of another one: memory and order are the other's, the ops are for a derived class to define.
#pragma once

#include "backend/backend.h"

namespace tandem {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(Backend& inner) : inner_(inner) {}

  std::string description() const override { return inner_.description(); }
  bool fixed_shape() const override { return inner_.fixed_shape(); }
  bool computes(DType type) const override { return inner_.computes(type); }
  int64_t loss_rows() const override { return inner_.loss_rows(); }
  int64_t decode_sentences() const override { return inner_.decode_sentences(); }
  MemorySizes memory_sizes() const override { return inner_.memory_sizes(); }
  void wait() override { inner_.wait(); }
  std::unique_ptr<Recording> record(std::function<void()> body) override { return inner_.record(std::move(body)); }
  std::unique_ptr<Feed> make_feed(size_t bytes) override { return inner_.make_feed(bytes); }
  std::unique_ptr<Outbox> make_outbox(size_t bytes) override { return inner_.make_outbox(bytes); }
  void set_tuning(bool on) override { inner_.set_tuning(on); }
  std::string algorithms() const override { return inner_.algorithms(); }
  void use_algorithms(const std::string& table, const std::string& name) override {
    inner_.use_algorithms(table, name);
  }
  Buffer allocate(size_t bytes) override { return inner_.allocate(bytes); }
  void upload(const View& to, const void* from) override { inner_.upload(to, from); }
  void download(void* to, const View& from) override { inner_.download(to, from); }

 protected:
  Backend& inner_;
};

}  // namespace tandem
