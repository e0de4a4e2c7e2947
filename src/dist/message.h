// Messages between ranks and their rendezvous: lists of byte strings.
//
// Format: the number of bytes that follow, then for every field its length and its bytes; numbers have 32 bits, most
// significant byte first.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::dist {

using Message = std::vector<std::string>;

std::string encode(const Message& message);

// Splits an untrusted stream of bytes into messages. A message of more than `limit` bytes, or one whose fields do not
// fill it exactly, is an Error.
class MessageReader {
 public:
  explicit MessageReader(size_t limit) : limit_(limit) {}

  void set_limit(size_t limit) { limit_ = limit; }
  void add(std::string_view bytes) { bytes_.append(bytes); }
  std::optional<Message> next();  // returns the next complete message

 private:
  size_t limit_;
  std::string bytes_;
};

// A field as a number in [low, high]; anything else is an Error.
int number_of(const std::string& field, int low, int high);

// Field number i; an Error if the message is shorter.
const std::string& field_of(const Message& message, size_t i);

// Text from a peer, safe to print: control characters become '?', and it is cut at `limit` bytes.
std::string printable(const std::string& text, size_t limit = 1000);

// Both ends of a connection prove that they know the secret without sending it: each sends the HMAC-SHA256 of numbers
// that both have drawn at random.

// Two hexadecimal digits a byte.
std::string to_hex(std::span<const unsigned char> bytes);

// 32 random hexadecimal digits: a secret, or a nonce.
std::string random_token();

// An HMAC of these fields that only a holder of the secret can compute.
std::string proof(const std::string& secret, const Message& fields);

// Takes the same time wherever the two differ.
bool same_proof(const std::string& a, const std::string& b);

}  // namespace tandem::dist
