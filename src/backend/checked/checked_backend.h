// Runs every op on a device and on the CPU, and compares the results. The device's results are kept, so a checked run
// continues with the same bits as an unchecked one.
#pragma once

#include "backend/forwarding.h"

namespace tandem::backend {

class CheckedBackend final : public ForwardingBackend {
 public:
  // Takes ownership of the device. threads: CPU threads, 0 = all usable cores.
  explicit CheckedBackend(std::unique_ptr<Backend> device, int threads = 0);

  // While on, each op is checked; the first one whose results differ fails. Must be off while recording.
  void set_checking(bool on) { checking_ = on; }
  int64_t ops_checked() const { return ops_checked_; }

  void run(const op::Any& op) override;
  void hold_sums(bool on) override { inner_.hold_sums(on && !checking_); }  // each op is compared by itself

 private:
  template <class Op>
  void check(const Op& op);

  std::unique_ptr<Backend> device_, cpu_;
  bool checking_ = false;
  int64_t ops_checked_ = 0;
};

}  // namespace tandem::backend
