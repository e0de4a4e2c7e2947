#include "core/signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tandem::inline core {
namespace {

TEST(Signals, AskToStopAndToSave) {
  {
    Signals signals;
    EXPECT_EQ(signals.stop_signal(), 0);
    EXPECT_FALSE(signals.take_save_request());
    ::raise(SIGUSR1);
    EXPECT_TRUE(signals.take_save_request());
    EXPECT_FALSE(signals.take_save_request());
    ::raise(SIGTERM);
    EXPECT_EQ(signals.stop_signal(), SIGTERM);
  }
  Signals fresh;
  EXPECT_EQ(fresh.stop_signal(), 0);
}

TEST(Signals, ASecondOneEndsTheProcess) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Signals signals;
    ::raise(SIGINT);
    if (signals.stop_signal() == SIGINT) {
      ::raise(SIGINT);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

TEST(Signals, HandlersAreLeftAsTheyWere) {
  struct sigaction before {
  }, after{};
  ::sigaction(SIGTERM, nullptr, &before);
  { const Signals signals; }
  ::sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

}  // namespace
}  // namespace tandem::inline core
