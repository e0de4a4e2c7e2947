// tandem prepare as a user runs it: standard input, signals, a full disk.
#include <signal.h>
#include <sys/mount.h>

#include <chrono>
#include <thread>

#include "core/philox.h"
#include "end_to_end/program.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// Random words; enough different ones for some seconds of subword training.
std::string random_text(int lines, uint32_t seed) {
  PhiloxStream random(seed, 9);
  std::string text;
  for (int line = 0; line < lines; ++line) {
    for (int word = 0; word < 10; ++word) {
      for (uint64_t left = 3 + random.below(8); left > 0; --left) {
        text += static_cast<char>('a' + random.below(26));
      }
      text += word == 9 ? '\n' : ' ';
    }
  }
  return text;
}

// Names in the directory that are not among the inputs a, b.
std::vector<std::string> leftovers(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name != "a" && name != "b" && name != "log") {
      names.push_back(name);
    }
  }
  return names;
}

TEST(PrepareProgram, StandardInput) {
  const TemporaryDirectory directory;
  std::string columns;
  for (int i = 0; i < 500; ++i) {
    const std::string number = std::to_string(i * 7 % 500);
    columns += "line " + number + "\tZeile " + number + "\n";
  }
  const Result result = run({"prepare", "--tsv", "-", "--vocab-size", "60", "--out", directory.at("data")}, columns);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("training pairs: 500"), std::string::npos) << result.out;
  EXPECT_TRUE(fs::exists(directory / "data" / "train.corpus"));
  const Result both = run({"prepare", "--source", "-", "--target", "-", "--out", directory.at("x")}, columns);
  EXPECT_EQ(both.exit_code, 1);
  EXPECT_EQ(both.err, "tandem: standard input (-) can be read only once\n");
}

TEST(PrepareProgram, SignalsLeaveNothingBehind) {
  const TemporaryDirectory directory;
  write_text(directory / "a", random_text(60000, 1));
  write_text(directory / "b", random_text(60000, 2));
  const std::vector<std::string> arguments = {"prepare",           "--source",        directory.at("a"),
                                              "--target",          directory.at("b"), "--out",
                                              directory.at("out"), "--vocab-size",    "20000"};
  // At first while the text is read, at last while SentencePiece learns.
  const std::pair<int, int> cases[] = {{SIGINT, 0}, {SIGTERM, 30}, {SIGINT, 200}, {SIGTERM, 2500}};
  for (const auto& [signal, milliseconds] : cases) {
    const pid_t process = start(arguments, directory / "log");
    for (int waited = 0; leftovers(directory / "").empty() && waited < 2000; ++waited) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    ::kill(process, signal);
    EXPECT_EQ(wait_for(process), 128 + signal) << read_text(directory / "log");
    EXPECT_EQ(leftovers(directory / ""), std::vector<std::string>{});
  }
  EXPECT_NE(read_text(directory / "log").find("interrupted; nothing was written"), std::string::npos);
}

TEST(PrepareProgram, FullDiskLeavesNothingBehind) {
  const TemporaryDirectory directory;
  write_text(directory / "a", random_text(20000, 1));
  write_text(directory / "b", random_text(20000, 2));
  const fs::path small = directory / "small";
  fs::create_directory(small);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "a small tmpfs cannot be mounted here (needs root): the full disk is not tested";
  }
  const Result result = run({"prepare", "--source", directory.at("a"), "--target", directory.at("b"), "--vocab-size",
                             "100", "--out", (small / "out").string()});
  const auto left = leftovers(small);
  ::umount(small.c_str());
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("No space left on device; free some space and run again\n"), std::string::npos)
      << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(left, std::vector<std::string>{});
}

}  // namespace
}  // namespace tandem::testing
