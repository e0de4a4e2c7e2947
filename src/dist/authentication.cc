#include "dist/authentication.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace tandem::dist {

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  require(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
          "the system gives no random numbers: {}", std::strerror(errno));
  std::string token;
  for (const unsigned char byte : bytes) {
    token += fmt::format("{:02x}", byte);
  }
  return token;
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

}  // namespace tandem::dist
