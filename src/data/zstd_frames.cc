#include "data/zstd_frames.h"

#include <algorithm>

namespace tandem::data {

namespace {

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

}  // namespace

void ZstdFrames::add(std::string_view bytes) {
  while (!bytes.empty()) {
    if (skip_ > 0) {
      const size_t part = std::min<uint64_t>(skip_, bytes.size());
      skip_ -= part;
      bytes.remove_prefix(part);
      continue;
    }
    const size_t part = std::min(wanted_ - field_.size(), bytes.size());
    field_.append(bytes.substr(0, part));
    bytes.remove_prefix(part);
    if (field_.size() == wanted_) {
      read_field();
      field_.clear();
    }
  }
}

// RFC 8878, section 3.1. A wrong magic number is left to the decompressor.
void ZstdFrames::read_field() {
  const uint32_t value = little_endian(field_);
  switch (state_) {
    case State::magic:
      state_ = (value & ~0xFU) == 0x184D2A50 ? State::skippable_size : State::descriptor;
      wanted_ = state_ == State::descriptor ? 1 : 4;
      break;
    case State::skippable_size:
      skip_ = value;
      state_ = State::magic;
      wanted_ = 4;
      break;
    case State::descriptor: {
      const bool single_segment = (value >> 5 & 1) == 1;
      const uint64_t dictionary[] = {0, 1, 2, 4};
      const uint64_t content[] = {single_segment ? 1U : 0U, 2, 4, 8};
      skip_ = (single_segment ? 0 : 1) + dictionary[value & 3] + content[value >> 6];
      checksum_ = (value >> 2 & 1) == 1;
      state_ = State::block;
      wanted_ = 3;
      break;
    }
    case State::block: {
      const bool last = (value & 1) == 1;
      const bool repeated = (value >> 1 & 3) == 1;  // one byte represents the whole block
      skip_ = (repeated ? 1 : value >> 3) + (last && checksum_ ? 4 : 0);
      state_ = last ? State::magic : State::block;
      wanted_ = last ? 4 : 3;
      break;
    }
  }
}

}  // namespace tandem::data
