// How fast ranks do something together, whether that takes a microsecond or a minute.
#pragma once

#include <cstdint>
#include <functional>

#include "dist/communicator.h"

namespace tandem::preflight {

// Does work(amount) with amounts that grow, from `amount` on, until one takes about `seconds`; gives amount / seconds
// of that one, by rank 0's clock, the same on all ranks. work returns when its part is done on this rank.
double measure_rate(dist::Communicator& control, double seconds, int64_t amount,
                    const std::function<void(int64_t)>& work);

}  // namespace tandem::preflight
