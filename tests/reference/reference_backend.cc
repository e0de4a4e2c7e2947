#include "reference/reference_backend.h"

#include <algorithm>

#include "reference/adam.h"
#include "reference/add_rows.h"
#include "reference/attention.h"
#include "reference/attention_backward.h"
#include "reference/attention_cached.h"
#include "reference/cross_entropy.h"
#include "reference/embed.h"
#include "reference/embed_backward.h"
#include "reference/gradient_norm.h"
#include "reference/linear.h"
#include "reference/linear_backward_input.h"
#include "reference/linear_backward_weights.h"
#include "reference/linear_residual_norm.h"
#include "reference/memory.h"
#include "reference/moving_average.h"
#include "reference/projected_loss.h"
#include "reference/residual_norm.h"
#include "reference/residual_norm_backward.h"
#include "reference/top_log_probabilities.h"

namespace tandem::reference {

namespace {

class ReferenceBackend final : public backend::Backend {
 public:
  std::string description() const override { return "the reference"; }
  backend::DeviceTraits traits() const override { return {}; }
  MemorySizes memory_sizes() const override { return {}; }

  void wait() override {}
  void stamp(uint64_t*) override {}
  std::unique_ptr<backend::Recording> record(std::function<void()>) override { return nullptr; }
  std::unique_ptr<backend::Feed> make_feed(size_t) override { return nullptr; }
  std::unique_ptr<backend::Outbox> make_outbox(size_t) override { return nullptr; }

  Buffer allocate(size_t bytes) override {
    return Buffer(::operator new(bytes + 1), bytes, Memory::host, [](void* memory) { ::operator delete(memory); });
  }
  void upload(const View& to, const void* from) override { copy_bytes(to.data, from, to.bytes()); }
  void download(void* to, const ConstView& from) override { copy_bytes(to, from.data, from.bytes()); }

  void run(const op::Any& any) override {
    std::visit([](const auto& op) { compute(op); }, any);
  }

 private:
  // Of nothing the address may be null, which memcpy does not allow.
  static void copy_bytes(void* to, const void* from, size_t bytes) {
    std::copy_n(static_cast<const char*>(from), bytes, static_cast<char*>(to));
  }
};

}  // namespace

backend::Backend& reference_backend() {
  static ReferenceBackend backend;
  return backend;
}

}  // namespace tandem::reference
