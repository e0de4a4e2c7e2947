// Access rules of `tandem watch`. Pure functions.
#pragma once

#include <string>

namespace tandem::report {

bool is_this_machine(const std::string& address);  // 127.x.y.z, ::1, localhost

// Whether a Host header may stand for a server bound to `address`. A page of another site can make a browser send
// requests here under that site's name (DNS rebinding), but not under a number or this machine's own name.
bool host_allowed(const std::string& host, const std::string& address);

// Takes a time that does not depend on how much of the token is right.
bool token_matches(const std::string& given, const std::string& wanted);

}  // namespace tandem::report
