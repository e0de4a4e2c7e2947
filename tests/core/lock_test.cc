#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/file.h"
#include "temporary_directory.h"

namespace tandem::inline core {
namespace {

using testing::message_of;

TEST(FileLock, NamesTheHolderAndIsFreedByItsDeath) {
  const testing::TemporaryDirectory directory;
  const auto path = directory / "lock";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const FileLock lock(path, "it");
    [[maybe_unused]] const ssize_t written = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const std::string message = message_of([&] { FileLock lock(path, "the thing"); });
  EXPECT_NE(message.find("the thing is in use by process " + std::to_string(child)), std::string::npos) << message;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(message_of([&] { FileLock lock(path, "the thing"); }), "");
  EXPECT_NE(message_of([&] { FileLock lock(directory / "none/lock", "x"); }), "");
}

}  // namespace
}  // namespace tandem::inline core
