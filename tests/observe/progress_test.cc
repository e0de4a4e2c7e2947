#include "observe/progress.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "observe/probes/host_probes.h"

namespace tandem::observe {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Windows of 10 steps.
TrainPoint window(int64_t step, double epoch, double loss, double learning_rate, double gradient_norm,
                  double tokens_per_second, double ms_per_step) {
  TrainPoint p;
  p.step = step, p.epoch = epoch, p.loss = loss, p.learning_rate = learning_rate, p.gradient_norm = gradient_norm;
  p.steps = 10, p.compute_seconds = ms_per_step / 100, p.target_tokens = tokens_per_second * p.compute_seconds;
  return p;
}

TEST(Progress, console_line) {
  EXPECT_EQ(
      console_line(window(1200, 0.4321, 4.12345, 1.4823e-4, 0.8712, 12345, 812.3), 50000, 39730),
      "step 1,200/50,000  epoch 0.43  loss 4.1235  lr 1.48e-04  grad 0.871  12.3k tok/s  812 ms/step  ETA 11 h 02 m");
  EXPECT_EQ(console_line(window(1200, 0.4321, kNan, 1.4823e-4, 0.8712, 12345, 8.25), 0, -1),
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
  const TrainPoint at_25 = window(25, 0, 0, 0, 0, 0, 0);
  EXPECT_TRUE(status_line(at_25, 100, 0, 200).starts_with("[#####---------------]  25 % step 25/100"));
  EXPECT_EQ(status_line(at_25, 100, 0, 15), "step 25/100  ET");
  EXPECT_EQ(status_line(at_25, 100, 0, 0), "");
}

TEST(Progress, a_narrow_status_line_keeps_speed_and_eta) {
  const TrainPoint at_12 = window(12, 0.04, 8.98424, 6.71e-5, 1.5, 1210, 1232);
  EXPECT_EQ(status_line(at_12, 60, 62, 80),
            "[####----------------]  20 % step 12/60  loss 8.9842  1.21k tok/s  ETA 1 m 02 s");
  EXPECT_EQ(status_line(at_12, 60, 62, 55), "[####----------------]  20 % step 12/60  ETA 1 m 02 s");
  EXPECT_EQ(status_line(at_12, 60, 62, 40), "step 12/60  ETA 1 m 02 s");
}

TEST(Memory, peak_grows_with_use) {
  const int64_t before = peak_memory();
  EXPECT_GT(before, 1'000'000);
  const std::vector<char> block(64'000'000, 'x');
  EXPECT_GE(peak_memory(), before + 50'000'000 * (block.back() == 'x' ? 1 : 0));
}

}  // namespace
}  // namespace tandem::observe
