#include "report/watch_access.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

namespace tandem::report {

namespace {

TEST(WatchAccess, OnLoopbackOnlyItsOwnNames) {
  for (const char* good : {"localhost", "localhost:7117", "LOCALHOST:1", "127.0.0.1:7117", "127.0.0.1", "[::1]:7117"}) {
    EXPECT_TRUE(host_allowed(good, "127.0.0.1")) << good;
  }
  for (const char* bad : {"", "evil.example", "evil.example:7117", "127.0.0.1.evil.example", "localhost.evil.example",
                          "192.168.1.5:7117", "[::1", "[]", ":7117", "127.0.0.1@evil.example"}) {
    EXPECT_FALSE(host_allowed(bad, "127.0.0.1")) << bad;
  }
}

TEST(WatchAccess, OnOtherAddressesNumbersAndTheMachinesName) {
  std::array<char, 256> name{};
  ASSERT_EQ(gethostname(name.data(), name.size() - 1), 0);
  for (const char* good :
       {"192.168.1.5:7117", "[2001:db8::1]:7117", "localhost", static_cast<const char*>(name.data())}) {
    EXPECT_TRUE(host_allowed(good, "0.0.0.0")) << good;
  }
  EXPECT_FALSE(host_allowed("evil.example", "0.0.0.0"));
  EXPECT_TRUE(host_allowed("gpu1.example:7117", "gpu1.example"));
}

TEST(WatchAccess, AddressesOfThisMachine) {
  for (const char* good : {"127.0.0.1", "127.9.9.9", "::1", "localhost"}) {
    EXPECT_TRUE(is_this_machine(good)) << good;
  }
  for (const char* bad : {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "127.0.0.1.example", ""}) {
    EXPECT_FALSE(is_this_machine(bad)) << bad;
  }
}

TEST(WatchAccess, TokensMatchWhole) {
  EXPECT_TRUE(token_matches("secret", "secret"));
  for (const char* bad : {"", "secre", "secrets", "Secret", "xecret"}) {
    EXPECT_FALSE(token_matches(bad, "secret")) << bad;
  }
}

}  // namespace

}  // namespace tandem::report
