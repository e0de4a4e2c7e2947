// The secret that clients of `tandem watch` must send, and when one is wanted though none was given.
#pragma once

#include <filesystem>
#include <string>

namespace tandem::report {

// Fails unless the token is long and fits into a URL as it is. `name` stands for its origin in messages.
void require_sound_token(const std::string& token, const std::string& name);

// The token in a file, without white space behind it. As ssh does with its keys, refuses a file of this user's that
// others may read.
std::string read_token(const std::filesystem::path& file);

// Whether the loopback address may be reached by other people: there is another account that one can log in to (a
// number of 1000 or more and a shell), a process of such an account, or accounts that are not listed here, of which
// `self` is one.
bool is_shared_machine(unsigned self, const std::filesystem::path& accounts = "/etc/passwd",
                       const std::filesystem::path& processes = "/proc");

}  // namespace tandem::report
