#pragma once

#include <string>

#include "core/file.h"

namespace tandem::http {

// A socket that listens on this address or name, IPv4 or IPv6. Port 0: any free one. Fails with a one-line error.
Descriptor listen_at(const std::string& address, int port);

int port_of(const Descriptor& listener);

}  // namespace tandem::http
