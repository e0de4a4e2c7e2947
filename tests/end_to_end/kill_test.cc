// kill -9 at random moments, inside checkpoint writes among them: the run always goes on, loses at most one interval,
// and ends with the very bits of the run that was never disturbed.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "core/philox.h"
#include "end_to_end/program.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 400;
constexpr int kInterval = 20;

int newest_step(const fs::path& run) {
  int newest = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("step-", 0) == 0) {
      newest = std::max(newest, std::atoi(name.c_str() + 5));
    }
  }
  return newest;
}

bool writing_checkpoint(const fs::path& run) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", error)) {
    if (entry.path().filename().string().find("partial") != std::string::npos) {
      return true;
    }
  }
  return false;
}

TEST(Kill, AlwaysResumesAndEndsWithTheSameBits) {
  const bool soak = std::getenv("TANDEM_SOAK") != nullptr;
  const int kills = soak ? 50 : 5, inside_wanted = soak ? 10 : 1;
  const TemporaryDirectory directory;
  make_small_corpus(directory);
  const std::vector<std::string> often{"checkpoint.every_steps=" + std::to_string(kInterval), "checkpoint.keep_last=2"};

  const Result quiet = run(train_arguments(directory, "quiet", kSteps, often));
  ASSERT_EQ(quiet.exit_code, 0) << quiet.err;
  const std::string expected = read_text(directory / "quiet/latest/model.safetensors");
  const std::string expected_moments = read_text(directory / "quiet/latest/optimizer.safetensors");
  ASSERT_GT(expected.size(), 1000u);

  PhiloxStream random(17, 17);
  int after_first = 0, inside_write = 0;
  int killed = 0;
  int round = 0;
  // A write may be over before its kill arrives: then there is another one.
  const auto more = [&] { return killed < kills || (inside_write < inside_wanted && killed < 4 * kills); };
  while (more()) {
    // Several disturbed runs, since one run ends before it can be killed that often.
    const fs::path path = directory / ("run" + std::to_string(round));
    const std::string name = "run" + std::to_string(round++);
    int killed_here = 0;
    while (true) {
      const int before = newest_step(path);
      const pid_t process = start(train_arguments(directory, name, kSteps, often), directory / (name + ".log"));
      bool ended = false;
      int code = 0;
      if (more() && killed_here < 10) {
        const bool want_write = killed % 2 == 1;
        const int wait_until = before + kInterval;  // go on at least one interval, so that the run gets somewhere
        for (int i = 0; i < 20000 && !ended; ++i) {
          ended = has_ended(process, code);
          if (newest_step(path) >= wait_until && (!want_write || writing_checkpoint(path))) {
            break;
          }
          usleep(want_write ? 100 : 1000);
        }
        if (!ended && !want_write) {
          usleep(static_cast<useconds_t>(random.below(60000)));
          ended = has_ended(process, code);
        }
        if (!ended) {
          kill(process, SIGKILL);
          EXPECT_EQ(wait_for(process), 128 + SIGKILL);
          ++killed;
          ++killed_here;
          inside_write += writing_checkpoint(path) ? 1 : 0;
          after_first += newest_step(path) > 0 ? 1 : 0;
          EXPECT_GE(newest_step(path), before) << "a checkpoint was lost";
          continue;
        }
        EXPECT_EQ(code, 0) << read_text(directory / (name + ".log"));
      } else {
        EXPECT_EQ(wait_for(process), 0) << read_text(directory / (name + ".log"));
      }
      break;
    }
    EXPECT_EQ(newest_step(path), kSteps) << read_text(directory / (name + ".log"));
    EXPECT_EQ(read_text(path / "latest/model.safetensors"), expected);
    EXPECT_EQ(read_text(path / "latest/optimizer.safetensors"), expected_moments);
    EXPECT_FALSE(writing_checkpoint(path)) << "a half-written checkpoint was left behind";
    fs::remove_all(path);
  }
  std::printf("%d kills, %d after the first checkpoint, %d inside a checkpoint write\n", killed, after_first,
              inside_write);
  EXPECT_GE(after_first, soak ? 30 : 3);
  EXPECT_GE(inside_write, inside_wanted);
}

}  // namespace
}  // namespace tandem::testing
