// Times every op by itself: each runs several times in a row, so that the time is the device's and not that of
// launching the work. The results are therefore useless.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/forwarding.h"

namespace tandem::backend {

struct OpProfile {
  std::string name;  // op and shape
  int64_t calls = 0;
  double seconds = 0;  // total of all calls
  double bytes = 0;    // least bytes to move, over all calls
  double flops = 0;    // those of matrix products and attention
};

class ProfiledBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  std::vector<OpProfile> profile() const;  // the longest first
  void forget() { profiles_.clear(); }     // drops what was measured so far

  void run(const op::Any& op) override;
  void hold_sums(bool) override {}  // an op's sums are part of it

 private:
  std::map<std::string, OpProfile> profiles_;
};

}  // namespace tandem::backend
