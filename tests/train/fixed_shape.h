// A CPU that works at a fixed shape, as a GPU does.
#pragma once

#include "backend/forwarding.h"

namespace tandem::testing {

class FixedShape final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  DeviceTraits traits() const override {
    DeviceTraits traits = inner_.traits();
    traits.replays = true;
    return traits;
  }
};

}  // namespace tandem::testing
