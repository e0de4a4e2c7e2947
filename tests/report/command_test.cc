// `tandem report` and `tandem watch` as a user calls them.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

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

// `tandem watch` of all runs, until the object ends.
class Watch {
 public:
  Watch(const testing::TemporaryDirectory& directory, std::vector<std::string> arguments,
        const std::string& variable = "")
      : log_(directory / "log") {
    fs::remove(log_);
    arguments.insert(arguments.begin(), {TANDEM_BINARY, "watch", directory.path().string()});
    child_ = fork();
    if (child_ == 0) {
      const int log = ::open(log_.c_str(), O_CREAT | O_WRONLY, 0600);
      ::dup2(log, STDERR_FILENO);
      ::unsetenv("TANDEM_WATCH_TOKEN");
      if (!variable.empty()) {
        ::setenv("TANDEM_WATCH_TOKEN", variable.c_str(), 1);
      }
      std::vector<char*> words;
      for (std::string& argument : arguments) {
        words.push_back(argument.data());
      }
      words.push_back(nullptr);
      ::execv(TANDEM_BINARY, words.data());
      std::_Exit(127);
    }
    std::string log;
    for (int tries = 0; tries < 200 && log.find(" (Ctrl-C") == std::string::npos; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      log = fs::exists(log_) ? read_file(log_) : "";
    }
    const size_t begin = std::min(log.size(), log.find("http://"));
    url_ = log.substr(begin, log.find(" (Ctrl-C") - begin);
    port_ = std::atoi(url_.c_str() + std::min(url_.size(), url_.rfind(':') + 1));
  }
  ~Watch() { EXPECT_EQ(end(), 0); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  const std::string& url() const { return url_; }
  int port() const { return port_; }
  std::string token() const {
    return url_.find("?token=") == std::string::npos ? "" : url_.substr(url_.rfind('=') + 1);
  }
  int status_with(const std::string& query) const { return testing::get(port_, "/metrics" + query).status; }

 private:
  int end() const {
    ::kill(child_, SIGINT);
    int status = -1;
    ::waitpid(child_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  fs::path log_;
  pid_t child_ = 0;
  std::string url_;
  int port_ = 0;
};

TEST_F(ReportCommand, WatchTellsOfANewRecordAndEndsOnASignal) {
  const Watch watch(directory_, {"--no-token"});
  ASSERT_GT(watch.port(), 0);
  EXPECT_EQ(watch.token(), "");
  testing::HttpClient client(watch.port());
  client.send(testing::request("/events"));
  client.read_until("data: 1\n");
  append("a", 200);
  const std::string events = client.read_until("data: 2\n");
  EXPECT_NE(events.find("data: 2\n"), std::string::npos) << events;
  EXPECT_NE(testing::get(watch.port(), "/data.json").body.find("\"step\":200"), std::string::npos);
}

TEST_F(ReportCommand, WatchTakesItsTokenFromAFileTheEnvironmentOrMakesOne) {
  const std::string token = "0123456789abcdef", file = directory_.at("token");
  std::ofstream(file) << token << "\n";
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  using Words = std::vector<std::string>;
  for (const auto& [arguments, variable] :
       {std::pair<Words, std::string>({"--token-file", file}, "not this one"),
        std::pair<Words, std::string>({"--token", token}, "not this one"), std::pair<Words, std::string>({}, token)}) {
    const Watch watch(directory_, arguments, variable);
    EXPECT_EQ(watch.token(), token) << watch.url();
    EXPECT_EQ(watch.status_with(""), 401);
    EXPECT_EQ(watch.status_with("?token=" + token), 200);
  }
  const Watch made(directory_, {"--address", "0.0.0.0"});
  const Watch other(directory_, {"--address", "0.0.0.0"});
  EXPECT_EQ(made.token().size(), 32U) << made.url();
  EXPECT_NE(made.token(), other.token());
  EXPECT_EQ(made.status_with(""), 401);
  EXPECT_EQ(made.status_with("?token=" + made.token()), 200);
}

TEST_F(ReportCommand, WatchRefusesWeakTokensAndFilesThatOthersRead) {
  const auto refusal = [&](const std::string& arguments) {
    EXPECT_EQ(call("watch . " + arguments), 1) << said();
    EXPECT_EQ(std::ranges::count(said(), '\n'), 1) << said();
    return said();
  };
  EXPECT_NE(refusal("--token short").find("--token has 5 characters: 16 or more"), std::string::npos);
  EXPECT_NE(refusal("--token 0123456789abcde/").find("letters, digits, - and _ only"), std::string::npos);
  EXPECT_NE(refusal("--token-file missing").find("missing"), std::string::npos);
  EXPECT_NE(refusal("--token-file a").find("a"), std::string::npos);  // a directory
  EXPECT_NE(refusal("--address 0.0.0.0 --no-token").find("--no-token would let"), std::string::npos);
  std::ofstream(directory_ / "token") << "0123456789abcdef";
  fs::permissions(directory_ / "token", fs::perms(0640));
  EXPECT_NE(refusal("--token-file token").find("chmod 600 token"), std::string::npos);
  fs::permissions(directory_ / "token", fs::perms(0600));
  std::ofstream(directory_ / "token") << "\n";
  EXPECT_NE(refusal("--token-file token").find("the token in token has 0 characters"), std::string::npos);
  EXPECT_EQ(call("watch . --token 0123456789abcdef --no-token"), 2) << said();
  ::setenv("TANDEM_WATCH_TOKEN", "", 1);
  EXPECT_NE(refusal("").find("TANDEM_WATCH_TOKEN has 0 characters"), std::string::npos);
  ::unsetenv("TANDEM_WATCH_TOKEN");
}

}  // namespace

}  // namespace tandem::report
