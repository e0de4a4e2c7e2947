// Both ends of a connection show that they know the secret, without sending it: each proves it by the HMAC-SHA256 of
// numbers that both have drawn at random.
#pragma once

#include <string>

#include "dist/message.h"

namespace tandem {

// 32 hexadecimal digits, not to be guessed: a secret, or a number used once.
std::string random_token();

// What only a holder of the secret can say about these fields.
std::string proof(const std::string& secret, const Message& fields);

// Takes the same time wherever they differ.
bool same_proof(const std::string& a, const std::string& b);

}  // namespace tandem
