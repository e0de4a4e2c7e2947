// A launch under way, as a process with its output in a file, and the processes that belong to it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "core/philox.h"
#include "dist/hosts.h"
#include "dist/message.h"

namespace tandem::testing {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline std::string read_text(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline bool is_alive(pid_t process) {
  const std::string status = read_text("/proc/" + std::to_string(process) + "/stat");
  const size_t name_end = status.rfind(')');
  return name_end != std::string::npos && name_end + 2 < status.size() && status[name_end + 2] != 'Z';
}

class Launched {
 public:
  // arguments: those of `test_worker launch` or another program's.
  explicit Launched(std::vector<std::string> arguments) : tag_("tandem-test-" + dist::random_token()) {
    std::vector<char*> pointers;
    for (std::string& argument : arguments) {
      pointers.push_back(argument.data());
    }
    pointers.push_back(nullptr);
    process_ = fork();
    if (process_ == 0) {
      setenv("TANDEM_TEST_TAG", tag_.c_str(), 1);
      setpgid(0, 0);
      for (const auto& [name, to] : {std::pair("out", 1), std::pair("err", 2)}) {
        dup2(open((directory_ / name).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644), to);
      }
      execvp(pointers[0], pointers.data());
      _exit(127);
    }
  }
  ~Launched() {
    for (const pid_t process : processes()) {
      kill(process, SIGKILL);
    }
    if (!ended_) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
  }

  pid_t process() const { return process_; }
  std::string out() const { return read_text(directory_ / "out"); }
  std::string err() const { return read_text(directory_ / "err"); }
  std::string all() const { return out() + err(); }

  // Processes of all ranks once they work, by rank; fewer than `count` if that takes longer than 30 s.
  std::map<int, pid_t> wait_for_workers(int count) const {
    std::map<int, pid_t> workers;
    const auto deadline = steady_clock::now() + milliseconds(30000);
    while (static_cast<int>(workers.size()) < count && steady_clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(20));
      std::istringstream lines(out());
      for (std::string line; std::getline(lines, line);) {
        int rank = 0;
        int size = 0;
        int process = 0;
        const size_t at = line.find("rank ", line.starts_with("[") ? line.find(']') : 0);
        if (at != std::string::npos &&
            std::sscanf(line.c_str() + at, "rank %d of %d works in process %d", &rank, &size, &process) == 3) {
          workers[rank] = process;
        }
      }
    }
    EXPECT_EQ(static_cast<int>(workers.size()), count) << all();
    return workers;
  }

  // The exit code, 128 + signal if a signal ended it, or -1 if it still runs after that time.
  int wait(milliseconds longest) {
    const auto deadline = steady_clock::now() + longest;
    int status = 0;
    while (waitpid(process_, &status, WNOHANG) == 0) {
      if (steady_clock::now() > deadline) {
        return -1;
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
    ended_ = true;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  // All processes that it started, directly or not, and that still live: its tag is in their environment.
  std::set<pid_t> processes() const {
    std::set<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const pid_t process = std::atoi(entry.path().filename().c_str());
      if (process > 0 && process != process_ && contains(read_text(entry.path() / "environ"), tag_) &&
          is_alive(process)) {
        found.insert(process);
      }
    }
    return found;
  }

  bool wait_until_nothing_is_left(milliseconds longest) const {
    const auto deadline = steady_clock::now() + longest;
    while (!processes().empty() && steady_clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(50));
    }
    return processes().empty();
  }

 private:
  const std::string tag_;
  const TemporaryDirectory directory_;
  pid_t process_ = -1;
  bool ended_ = false;
};

inline std::vector<std::string> launch_arguments(const std::string& hosts, const std::string& agent, int restarts,
                                                 const std::vector<std::string>& work) {
  std::vector<std::string> arguments{TANDEM_WORKER, "launch", hosts, agent, std::to_string(restarts), "/", "work"};
  arguments.insert(arguments.end(), work.begin(), work.end());
  return arguments;
}

}  // namespace tandem::testing
