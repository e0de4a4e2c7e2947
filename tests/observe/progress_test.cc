#include "observe/progress.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "observe/memory.h"

namespace tandem {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Progress, console_line) {
  Progress progress{.step = 1200,
                    .last_step = 50000,
                    .epoch = 0.4321,
                    .loss = 4.12345,
                    .learning_rate = 1.4823e-4,
                    .gradient_norm = 0.8712,
                    .tokens_per_second = 12345,
                    .ms_per_step = 812.3,
                    .seconds_left = 39730};
  EXPECT_EQ(
      console_line(progress),
      "step 1,200/50,000  epoch 0.43  loss 4.1235  lr 1.48e-04  grad 0.871  12.3k tok/s  812 ms/step  ETA 11 h 02 m");
  progress.last_step = 0;
  progress.loss = kNan;
  progress.seconds_left = -1;
  progress.ms_per_step = 8.25;
  EXPECT_EQ(console_line(progress),
            "step 1,200  epoch 0.43  loss nan  lr 1.48e-04  grad 0.871  12.3k tok/s  8.2 ms/step  ETA ?");
}

TEST(Progress, bar) {
  EXPECT_EQ(progress_bar(0, 10), "[----------]   0 %");
  EXPECT_EQ(progress_bar(0.456, 10), "[####------]  45 %");
  EXPECT_EQ(progress_bar(1, 10), "[##########] 100 %");
  EXPECT_EQ(progress_bar(1.7, 4), "[####] 100 %");
  EXPECT_EQ(progress_bar(kNan, 4), "[----]   0 %");
}

TEST(Progress, status_line_fits_the_terminal) {
  const Progress progress{.step = 25, .last_step = 100};
  EXPECT_TRUE(status_line(progress, 200).starts_with("[#####---------------]  25 % step 25/100"));
  EXPECT_EQ(status_line(progress, 15), "step 25/100  ET");
  EXPECT_EQ(status_line(progress, 0), "");
}

TEST(Progress, a_narrow_status_line_keeps_speed_and_eta) {
  const Progress progress{.step = 12,
                          .last_step = 60,
                          .epoch = 0.04,
                          .loss = 8.98424,
                          .learning_rate = 6.71e-5,
                          .gradient_norm = 1.5,
                          .tokens_per_second = 1210,
                          .ms_per_step = 1232,
                          .seconds_left = 62};
  EXPECT_EQ(status_line(progress, 80),
            "[####----------------]  20 % step 12/60  loss 8.9842  1.21k tok/s  ETA 1 m 02 s");
  EXPECT_EQ(status_line(progress, 55), "[####----------------]  20 % step 12/60  ETA 1 m 02 s");
  EXPECT_EQ(status_line(progress, 40), "step 12/60  ETA 1 m 02 s");
}

TEST(Memory, peak_grows_with_use) {
  const int64_t before = peak_memory();
  EXPECT_GT(before, 1'000'000);
  const std::vector<char> block(64'000'000, 'x');
  EXPECT_GE(peak_memory(), before + 50'000'000 * (block.back() == 'x' ? 1 : 0));
}

}  // namespace
}  // namespace tandem
