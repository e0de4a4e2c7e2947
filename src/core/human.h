// Quantities as text with their units: most wrong conclusions about a run come from mistaken units.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::inline core {

std::string human_duration(double seconds);  // "8 s", "3 m 20 s", "11 h 02 m", "2 d 04 h"; "?" if unknown
std::string human_count(double count);       // "950", "12.3k", "4.52M", "1.20G"; "?" if not finite
std::string human_bytes(double bytes);       // "950 B", "12.3 kB", "730.6 MB": decimal; "? B" if not finite
std::string grouped(int64_t number);         // "50,000"

std::string seconds_text(double seconds);         // "12.3 ms", "1.71 s", from two minutes "3 m 20 s"
std::string size_text(double bytes);              // "365 MB (348 MiB)"
std::string bits_text(double bits_per_second);    // "96.0 Mbit/s", "1.60 Gbit/s"
std::string rate_text(double bytes_per_second);   // "12.0 MB/s (96.0 Mbit/s)"
std::string flops_text(double flops_per_second);  // "437 TFLOP/s"
std::string port_name(double bits_per_second);    // "100 Mbit port", "2.5 Gbit port"
std::string percent_text(double share);           // "0.42 %", "9.1 %", "54 %"

}  // namespace tandem::inline core
