#include "observe/memory.h"

#include <fstream>
#include <string>

namespace tandem::observe {

int64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  std::string name;
  while (status >> name) {
    if (name == "VmHWM:") {
      int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

}  // namespace tandem::observe
