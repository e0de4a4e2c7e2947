// Human-readable durations, counts and bytes.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::inline core {

std::string human_duration(double seconds);  // "8 s", "3 m 20 s", "11 h 02 m", "2 d 04 h"; "?" when not known
std::string human_count(double count);       // "950", "12.3k", "4.52M", "1.20G"; "?" when not finite
std::string human_bytes(double bytes);       // "950 B", "12.3 kB", "730.6 MB": decimal; "? B" when not finite
std::string grouped(int64_t number);         // "50,000"

}  // namespace tandem::inline core
