#include "report/watch_token.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "core/error.h"
#include "temporary_directory.h"

namespace tandem::report {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSystem =
    "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/usr/sbin:/usr/sbin/nologin\nsync:x:4:65534::/bin:/bin/sync\n"
    "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n";
constexpr const char* kAnna = "anna:x:1000:1000::/home/anna:/bin/bash\n";

bool shared(unsigned self, const std::string& accounts, unsigned owner_of_a_process = 0) {
  const testing::TemporaryDirectory directory;
  std::ofstream(directory / "passwd") << accounts;
  fs::create_directories(directory / "proc" / "4711");
  fs::create_directories(directory / "proc" / "sys");
  EXPECT_TRUE(owner_of_a_process == 0 ||
              ::chown((directory / "proc" / "4711").c_str(), owner_of_a_process, owner_of_a_process) == 0);
  return is_shared_machine(self, directory / "passwd", directory / "proc");
}

TEST(WatchToken, OtherAccountsShareTheMachine) {
  const std::string system = kSystem;
  EXPECT_FALSE(shared(0, system));  // as in a container
  EXPECT_FALSE(shared(1000, system + kAnna));
  EXPECT_TRUE(shared(0, system + kAnna));
  EXPECT_TRUE(shared(1000, system + kAnna + "bert:x:1001:1001::/home/bert:/bin/zsh\n"));
  EXPECT_TRUE(shared(1000, system + kAnna + "bert:x:1001:1001::/home/bert:\n"));  // no shell means /bin/sh
  EXPECT_FALSE(shared(1000, system + kAnna + "bert:x:1001:1001::/home/bert:/bin/false\n"));
  EXPECT_FALSE(shared(1000, system + kAnna + "job:x:61184:61184::/:/bin/sh\n"));
}

TEST(WatchToken, AccountsOfADirectoryServiceShareTheMachine) {
  EXPECT_TRUE(shared(20'000, kSystem));
  EXPECT_TRUE(is_shared_machine(0, "/nowhere/passwd", "/nowhere/proc"));
}

TEST(WatchToken, ProcessesOfOthersShareTheMachine) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can make a directory of another user";
  }
  EXPECT_TRUE(shared(0, kSystem, 20'000));
  EXPECT_FALSE(shared(1000, std::string(kSystem) + kAnna, 1000));
  EXPECT_FALSE(shared(0, kSystem, 65'534));
  EXPECT_FALSE(shared(0, kSystem, 999));
}

TEST(WatchToken, AFileHasItInOneLine) {
  const testing::TemporaryDirectory directory;
  const fs::path file = directory / "token";
  std::ofstream(file) << "0123456789abcdef \r\n";
  fs::permissions(file, fs::perms(0600));
  EXPECT_EQ(read_token(file), "0123456789abcdef");
  fs::permissions(file, fs::perms(0604));
  EXPECT_THROW(read_token(file), Error);
  fs::permissions(file, fs::perms(0600));
  std::ofstream(file) << std::string(5000, 'x');
  EXPECT_THROW(read_token(file), Error);
  EXPECT_THROW(require_sound_token("0123456789abcde", "it"), Error);
  EXPECT_THROW(require_sound_token("0123456789abcdef\n0123456789abcdef", "it"), Error);
  EXPECT_NO_THROW(require_sound_token("0123456789_bcde-", "it"));
}

}  // namespace

}  // namespace tandem::report
