// Large numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

inline std::string grouped(int64_t number) {  // "50,000"
  std::string digits = std::to_string(number);
  const int first = number < 0 ? 1 : 0;
  for (int place = static_cast<int>(digits.size()) - 3; place > first; place -= 3) {
    digits.insert(static_cast<size_t>(place), 1, ',');
  }
  return digits;
}

}  // namespace tandem
