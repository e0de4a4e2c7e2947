// What this machine is called.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace tandem {

inline std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "localhost";
}

}  // namespace tandem
