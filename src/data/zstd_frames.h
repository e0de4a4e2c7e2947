// Follows the frames of a zstd stream, to see whether it ends where a frame ends. Boost's decompressor does not
// distinguish a truncated file from a complete one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::data {

class ZstdFrames {
 public:
  void add(std::string_view bytes);  // the next compressed bytes
  bool complete() const { return state_ == State::magic && field_.empty() && skip_ == 0; }

 private:
  enum class State { magic, skippable_size, descriptor, block };

  void read_field();

  State state_ = State::magic;
  size_t wanted_ = 4;  // bytes of the field that is being read
  std::string field_;  // its bytes so far
  uint64_t skip_ = 0;  // bytes to skip before the next field
  bool checksum_ = false;
};

}  // namespace tandem::data
