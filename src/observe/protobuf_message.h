// Writes protobuf messages field by field, without a schema: the few that TensorBoard's event files are made of.
//
// Why not libprotobuf: Debian's SentencePiece library exports a protobuf of its own and of another version, and a
// process that holds both calls into the wrong one and crashes.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::observe {

class ProtobufMessage {
 public:
  ProtobufMessage& integer(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  ProtobufMessage& number(int field, double value) {
    key(field, 1);
    fixed(std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  ProtobufMessage& number(int field, float value) {
    key(field, 5);
    fixed(std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  ProtobufMessage& text(int field, std::string_view value) {  // also bytes and messages
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtobufMessage& message(int field, const ProtobufMessage& value) { return text(field, value.bytes_); }

  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int type) { varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_.push_back(static_cast<char>(value | 0x80));
    }
    bytes_.push_back(static_cast<char>(value));
  }
  void fixed(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) {
      bytes_.push_back(static_cast<char>(value >> (8 * i)));
    }
  }

  std::string bytes_;
};

}  // namespace tandem::observe
