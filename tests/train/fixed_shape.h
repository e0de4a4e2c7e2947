// A CPU that works at a fixed shape, as a GPU does.
#pragma once

#include "backend/forwarding.h"

namespace tandem::testing {

class FixedShape final : public backend::ForwardingBackend {
 public:
  using backend::ForwardingBackend::ForwardingBackend;
  backend::DeviceTraits traits() const override {
    backend::DeviceTraits traits = inner_.traits();
    traits.replays = true;
    return traits;
  }
};

}  // namespace tandem::testing
