#include "report/watch_access.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/file.h"

namespace tandem::report {

namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The host without port, brackets and capitals; empty if a bracket is not closed.
std::string name_of_host(const std::string& host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end == std::string::npos ? "" : lower(host.substr(1, end - 1));
  }
  return lower(host.substr(0, host.find(':')));
}

bool is_number(const std::string& address) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return inet_pton(AF_INET, address.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1;
}

}  // namespace

bool is_this_machine(const std::string& address) {
  in_addr v4{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  return address == "::1" || lower(address) == "localhost";
}

bool host_allowed(const std::string& host, const std::string& address) {
  const std::string name = name_of_host(host);
  if (name.empty()) {
    return false;
  }
  if (is_this_machine(name) || name == lower(address)) {
    return true;
  }
  return !is_this_machine(address) && (is_number(name) || name == lower(host_name()));
}

bool token_matches(const std::string& given, const std::string& wanted) {
  unsigned different = given.size() == wanted.size() ? 0 : 1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    different |= static_cast<unsigned char>(wanted[i]) ^ static_cast<unsigned char>(i < given.size() ? given[i] : 0);
  }
  return different == 0;
}

}  // namespace tandem::report
