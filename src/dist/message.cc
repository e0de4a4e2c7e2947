#include "dist/message.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "core/parse.h"

namespace tandem::dist {
namespace {

constexpr size_t kNumber = 4;  // bytes of a number

void append_number(std::string& bytes, size_t value) {
  require(value <= UINT32_MAX, "a message of {} bytes is too long", value);
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(value >> shift & 255));
  }
}

size_t number_at(std::string_view bytes) {
  size_t value = 0;
  for (size_t i = 0; i < kNumber; ++i) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

Message fields_of(std::string_view bytes) {
  Message message;
  while (!bytes.empty()) {
    require(bytes.size() >= kNumber, "a message ends inside a field's length");
    const size_t length = number_at(bytes);
    bytes.remove_prefix(kNumber);
    require(length <= bytes.size(), "a message ends inside a field");
    message.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return message;
}

}  // namespace

std::string encode(const Message& message) {
  std::string fields;
  for (const std::string& field : message) {
    append_number(fields, field.size());
    fields += field;
  }
  std::string bytes;
  append_number(bytes, fields.size());
  return bytes + fields;
}

std::optional<Message> MessageReader::next() {
  if (bytes_.size() < kNumber) {
    return std::nullopt;
  }
  const size_t length = number_at(bytes_);
  require(length <= limit_, "a message of {} bytes exceeds the limit of {}", length, limit_);
  if (bytes_.size() < kNumber + length) {
    return std::nullopt;
  }
  Message message = fields_of(std::string_view(bytes_).substr(kNumber, length));
  require(!message.empty(), "an empty message");
  bytes_.erase(0, kNumber + length);
  return message;
}

int number_of(const std::string& field, int low, int high) {
  const auto value = parse_number<int>(field);
  require(value && *value >= low && *value <= high, "'{}' is not a number from {} to {}", printable(field, 40), low,
          high);
  return *value;
}

const std::string& field_of(const Message& message, size_t i) {
  require(i < message.size(), "a '{}' message has only {} fields", printable(message.at(0), 40), message.size());
  return message[i];
}

std::string printable(const std::string& text, size_t limit) {
  std::string clean = text.substr(0, limit);
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < ' ' || c == 127) {
      c = '?';
    }
  }
  return clean;
}

std::string to_hex(std::span<const unsigned char> bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    text += fmt::format("{:02x}", byte);
  }
  return text;
}

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  require(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
          "the system gives no random numbers: {}", std::strerror(errno));
  return to_hex(bytes);
}

std::string proof(const std::string& secret, const Message& fields) {
  const std::string text = encode(fields);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  require(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
               reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &size) != nullptr,
          "libcrypto cannot compute HMAC-SHA256");
  return {reinterpret_cast<const char*>(digest.data()), size};
}

bool same_proof(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string Seal::proof_of(const Message& message) {
  Message numbered{std::to_string(number_++)};
  numbered.insert(numbered.end(), message.begin(), message.end());
  return proof(key_, numbered);
}

Message Seal::close(Message message) {
  if (!key_.empty()) {
    message.push_back(proof_of(message));
  }
  return message;
}

Message Seal::open(Message message) {
  if (!key_.empty()) {
    const std::string given = std::move(message.back());
    message.pop_back();
    if (message.empty() || !same_proof(given, proof_of(message))) {
      throw Altered("a message was altered or added on its way");
    }
  }
  return message;
}

Session::Session(const std::string& secret, Message greetings) {
  greetings.insert(greetings.begin(), "of the server");
  of_server = Seal(proof(secret, greetings));
  greetings.front() = "of the rank";
  of_rank = Seal(proof(secret, greetings));
}

}  // namespace tandem::dist
