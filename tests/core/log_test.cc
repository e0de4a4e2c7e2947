#include "core/log.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tandem::inline core {
namespace {

TEST(Log, ARedirectTakesTheLinesOfItsThreadAlone) {
  std::vector<std::string> taken;
  const log::Redirect::Sink sink = [&taken](bool warning, const std::string& line) {
    taken.push_back((warning ? "W " : "I ") + line);
    warning ? log::warning("heard {}", line) : log::info("heard {}", line);
  };
  ::testing::internal::CaptureStderr();
  {
    const log::Redirect redirect(sink);
    log::info("one of {}", 3);
    log::warning("two");
    std::thread([] { log::info("another thread's"); }).join();
    {
      const log::Redirect::Sink none;
      const log::Redirect dropped(none);
      log::warning("nobody hears this");
    }
    log::info("three");
  }
  log::info("afterwards");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "heard one of 3\nwarning: heard two\nanother thread's\nheard three\nafterwards\n");
  EXPECT_EQ(taken, (std::vector<std::string>{"I one of 3", "W two", "I three"}));
}

}  // namespace
}  // namespace tandem::inline core
