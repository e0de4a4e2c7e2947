// The two languages of a sentence pair.
#pragma once

#include <cstdint>

namespace tandem::inline core {

enum class Side : uint8_t { source, target };

constexpr Side kSides[] = {Side::source, Side::target};

}  // namespace tandem::inline core
