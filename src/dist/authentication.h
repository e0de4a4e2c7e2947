// Both ends of a connection prove that they know the secret without sending it: each sends the HMAC-SHA256 of numbers
// that both have drawn at random.
#pragma once

#include <string>

#include "dist/message.h"

namespace tandem::dist {

// 32 random hexadecimal digits: a secret, or a nonce.
std::string random_token();

// An HMAC of these fields that only a holder of the secret can compute.
std::string proof(const std::string& secret, const Message& fields);

// Takes the same time wherever the two differ.
bool same_proof(const std::string& a, const std::string& b);

}  // namespace tandem::dist
