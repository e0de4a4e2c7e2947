// `tandem report` and `tandem watch` as a user calls them.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "core/file.h"
#include "http_client.h"
#include "observe/metrics.h"
#include "temporary_directory.h"

namespace tandem::report {

namespace {

namespace fs = std::filesystem;

class ReportCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(TANDEM_BINARY)) {
      GTEST_SKIP() << TANDEM_BINARY << " is not built";
    }
    append("a", 100);
    append("b", 100);
  }

  void append(const std::string& run, int64_t step) const {
    fs::create_directories(directory_ / run / "metrics");
    observe::Record record{.kind = "train", .step = step, .time = 1.7e9 + static_cast<double>(step)};
    record.add("nll", 2.0).add("loss", 3.0).add("compute_seconds", 1.0).add("steps_per_second", 10.0);
    std::ofstream(directory_ / run / "metrics" / "0.jsonl", std::ios::app) << to_json(record) << "\n";
  }

  // Exit code; standard output and error go to the file `said`.
  int call(const std::string& arguments) const {
    const std::string command =
        fmt::format("cd {} && {} {} > said 2>&1", directory_.path().string(), TANDEM_BINARY, arguments);
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string said() const { return read_file(directory_ / "said"); }

  testing::TemporaryDirectory directory_;
};

TEST_F(ReportCommand, WritesIntoTheRunAndPrintsTheAnswers) {
  ASSERT_EQ(call("report a"), 0) << said();
  EXPECT_NE(said().find("How long does it take?"), std::string::npos);
  EXPECT_NE(said().find("wrote a/report.html"), std::string::npos);
  for (const char* name : {"report.html", "report.md", "report.json"}) {
    EXPECT_GT(fs::file_size(directory_ / "a" / name), 500U) << name;
  }
}

TEST_F(ReportCommand, PrintsOnlyWithFormatAndWritesOnlyWithOut) {
  ASSERT_EQ(call("report a --format json"), 0) << said();
  EXPECT_TRUE(said().starts_with("{"));
  EXPECT_FALSE(fs::exists(directory_ / "a" / "report.html"));
  ASSERT_EQ(call("report a b --out both"), 0) << said();
  EXPECT_EQ(said().find("How long"), std::string::npos);
  EXPECT_TRUE(fs::exists(directory_ / "both" / "report.html"));
  EXPECT_EQ(call("report a b"), 1);
  EXPECT_NE(said().find("give --out"), std::string::npos);
  EXPECT_EQ(call("report missing"), 1);
}

TEST_F(ReportCommand, WatchTellsOfANewRecordAndEndsOnASignal) {
  const pid_t child = fork();
  if (child == 0) {
    const int log = ::open((directory_ / "log").c_str(), O_CREAT | O_WRONLY, 0600);
    ::dup2(log, STDERR_FILENO);
    ::execl(TANDEM_BINARY, TANDEM_BINARY, "watch", directory_.path().c_str(), nullptr);
    std::_Exit(127);
  }
  int port = 0;
  for (int tries = 0; tries < 200 && port == 0; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::string log = fs::exists(directory_ / "log") ? read_file(directory_ / "log") : "";
    const size_t at = log.find("127.0.0.1:");
    port = at == std::string::npos || log.find('/', at) == std::string::npos ? 0 : std::atoi(log.c_str() + at + 10);
  }
  ASSERT_GT(port, 0);
  testing::HttpClient client(port);
  client.send(testing::request("/events"));
  client.read_until("data: 1\n");
  append("a", 200);
  const std::string events = client.read_until("data: 2\n");
  EXPECT_NE(events.find("data: 2\n"), std::string::npos) << events;
  EXPECT_NE(testing::get(port, "/data.json").body.find("\"step\":200"), std::string::npos);
  ::kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace

}  // namespace tandem::report
