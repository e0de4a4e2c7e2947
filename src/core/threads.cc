#include "core/threads.h"

#include <sched.h>

#include "core/error.h"

namespace tandem {

namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

Threads::Threads(int count) : count_(count == 0 ? usable_cores() : count) {
  require(count_ >= 1 && count_ <= 1024, "threads must be 1 to 1024 (or 0 for all cores), not {}", count);
}

}  // namespace tandem
