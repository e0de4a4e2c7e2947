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

#include "core/error.h"

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

class Altered : public Error {
 public:
  using Error::Error;
};

// One direction of a connection whose two ends share a key. Each message gets one field more, a proof over the key, the
// message's number and its fields, so that whoever relays the connection can neither alter, add, repeat nor leave out
// one.
class Seal {
 public:
  Seal() = default;  // without a key, messages stay as they are
  explicit Seal(std::string key) : key_(std::move(key)) {}

  Message close(Message message);
  Message open(Message message);  // Altered if it is not the next one that the other end has closed

 private:
  std::string proof_of(const Message& message);

  std::string key_;
  uint64_t number_ = 0;
};

// The two ends' seals follow from the secret and from all that both have said in the greeting.
struct Session {
  Session() = default;
  Session(const std::string& secret, Message greetings);

  Seal of_server, of_rank;
};

}  // namespace tandem::dist
