#include "preflight/timeline.h"

#include <algorithm>

#include "core/error.h"

namespace tandem::preflight {

StepTimeline slowest(const std::vector<StepTimeline>& by_rank) {
  require(!by_rank.empty(), "no rank has timed a step");
  StepTimeline all = by_rank.front();
  for (const StepTimeline& own : by_rank) {
    require(own.messages.size() == all.messages.size(), "ranks send {} and {} messages in one step",
            own.messages.size(), all.messages.size());
    for (size_t i = 0; i < own.messages.size(); ++i) {
      all.messages[i].ready = std::max(all.messages[i].ready, own.messages[i].ready);
    }
    all.backward_end = std::max(all.backward_end, own.backward_end);
    all.update = std::max(all.update, own.update);
    all.overhead = std::max(all.overhead, own.overhead);
  }
  return all;
}

}  // namespace tandem::preflight
