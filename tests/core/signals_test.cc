#include "core/signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

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

int status_of_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(Signals, WithAGraceASecondOneChangesNothing) {
  EXPECT_EQ(status_of_child([] {
              const Signals signals(60);
              for (const int number : {SIGHUP, SIGTERM, SIGINT, SIGTERM, SIGPIPE}) {
                ::raise(number);
              }
              ::_exit(signals.stop_signal() == SIGHUP ? 0 : 2);
            }),
            0);
}

TEST(Signals, AfterTheGraceTheProcessEnds) {
  const int status = status_of_child([] {
    const Signals signals(1);
    ::raise(SIGTERM);
    for (int i = 0; i < 100; ++i) {
      ::usleep(100'000);
    }
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST(Signals, AHangUpThatNohupIgnoresStaysIgnored) {
  EXPECT_EQ(status_of_child([] {
              ::signal(SIGHUP, SIG_IGN);
              const Signals signals(60);
              ::raise(SIGHUP);
              ::_exit(signals.stop_signal() == 0 ? 0 : 2);
            }),
            0);
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
