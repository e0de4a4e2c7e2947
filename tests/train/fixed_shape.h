// A CPU that works at a fixed shape, as a GPU does.
#pragma once

#include "backend/forwarding.h"

namespace tandem::testing {

class FixedShape final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  bool fixed_shape() const override { return true; }
};

}  // namespace tandem::testing
