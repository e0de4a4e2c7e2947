// The two languages of a sentence pair.
#pragma once

#include <cstdint>

namespace tandem {

enum class Side : uint8_t { source, target };

constexpr Side kSides[] = {Side::source, Side::target};

}  // namespace tandem
