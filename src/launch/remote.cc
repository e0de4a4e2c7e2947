#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>

#include "core/error.h"
#include "launch/child.h"
#include "launch/push.h"

namespace tandem::launch {
namespace {

constexpr size_t kMostOutput = 64U << 20;

// Appends the available output. Returns false at the end of the stream.
bool read_some(const Pipe& pipe, std::string& text) {
  std::array<char, 65536> bytes{};
  const ssize_t count = read(pipe.get(), bytes.data(), bytes.size());
  if (count > 0) {
    text.append(bytes.data(), static_cast<size_t>(count));
    require(text.size() <= kMostOutput, "a command on another host prints too much");
  }
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

// Feeds a file's bytes into a pipe.
class Feeder {
 public:
  explicit Feeder(const std::string& path) : file_(path.empty() ? "/dev/null" : path, std::ios::binary) {
    require(file_.good(), "{} cannot be read", path);
  }

  // Returns false once everything is written, or the reader is gone.
  bool feed(const Pipe& pipe) {
    if (offset_ == piece_.size()) {
      piece_.resize(1U << 18);
      file_.read(piece_.data(), static_cast<std::streamsize>(piece_.size()));
      piece_.resize(static_cast<size_t>(file_.gcount()));
      offset_ = 0;
      if (piece_.empty()) {
        return false;
      }
    }
    const ssize_t count = write(pipe.get(), piece_.data() + offset_, piece_.size() - offset_);
    offset_ += count > 0 ? static_cast<size_t>(count) : 0;
    return count > 0 || errno == EAGAIN || errno == EINTR;
  }

 private:
  std::ifstream file_;
  std::string piece_;
  size_t offset_ = 0;
};

}  // namespace

RemoteResult run_on_host(const Host& host, const std::string& agent_command, const std::string& command,
                         const std::string& input) {
  const IgnoredPipeSignal ignored;
  ChildOptions options;
  options.arguments = split_command(agent_command);
  options.arguments.push_back(host.name);
  options.arguments.push_back(command);
  options.takes_input = true;
  options.dies_with_us = true;
  Child child = start_child(options);
  Feeder feeder(input);
  RemoteResult result;
  while (child.out.open() || child.err.open()) {
    std::vector<pollfd> events{
        {child.in.get(), POLLOUT, 0}, {child.out.get(), POLLIN, 0}, {child.err.get(), POLLIN, 0}};
    poll(events.data(), events.size(), 1000);  // closed ones are -1, which poll() ignores
    if (events[0].revents != 0 && !feeder.feed(child.in)) {
      child.in = Pipe();
    }
    if (events[1].revents != 0 && !read_some(child.out, result.out)) {
      child.out = Pipe();
    }
    if (events[2].revents != 0 && !read_some(child.err, result.err)) {
      child.err = Pipe();
    }
  }
  int status = 0;
  waitpid(child.process, &status, 0);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace tandem::launch
