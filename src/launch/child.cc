#include "launch/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace tandem::launch {
namespace {

constexpr size_t kLongestLine = 65536;

struct PipePair {
  Pipe read, write;
};

PipePair make_pipe() {
  std::array<int, 2> ends{};
  require(pipe2(ends.data(), O_CLOEXEC) == 0, "cannot make a pipe: {}", std::strerror(errno));
  return {Pipe(ends[0]), Pipe(ends[1])};
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> whole_environment(const std::vector<std::string>& added) {
  std::vector<std::string> all;
  const auto name_of = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::ranges::find(added, name_of(*entry), name_of) == added.end()) {
      all.emplace_back(*entry);
    }
  }
  all.insert(all.end(), added.begin(), added.end());
  return all;
}

// The child's arguments are built before fork(): after it only plain system calls are allowed.
struct ExecArguments {
  std::vector<char*> arguments, environment;
  const char* directory;
  int in, out, err, status, inherits;
  pid_t parent;  // 0: need not live
  bool deaf;
};

// Reports to the parent, then exits. step: 'd' for the directory, 'x' for the program; then errno.
[[noreturn]] void report_and_exit(int status, char step) {
  std::array<char, 1 + sizeof(int)> report{};
  const int error = errno;
  report[0] = step;
  std::memcpy(report.data() + 1, &error, sizeof error);
  [[maybe_unused]] const ssize_t ignored = write(status, report.data(), report.size());
  _exit(127);
}

[[noreturn]] void exec_program(const ExecArguments& child) {
  setpgid(0, 0);
  if (child.parent != 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != child.parent) {
      _exit(127);
    }
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // A SIGHUP that nohup has made ignored stays so; exec() resets one that is handled.
  for (const int number : {SIGPIPE, SIGUSR1}) {
    signal(number, SIG_DFL);
  }
  for (const int number : {SIGINT, SIGTERM}) {
    signal(number, child.deaf ? SIG_IGN : SIG_DFL);
  }
  if (child.deaf) {
    signal(SIGHUP, SIG_IGN);
  }
  if (child.directory[0] != 0 && chdir(child.directory) != 0) {
    report_and_exit(child.status, 'd');
  }
  dup2(child.in, 0);
  dup2(child.out, 1);
  dup2(child.err, 2);
  if (child.inherits >= 0) {
    fcntl(child.inherits, F_SETFD, 0);
  }
  execvpe(child.arguments[0], child.arguments.data(), child.environment.data());
  report_and_exit(child.status, 'x');
}

void require_started(const Pipe& status, const ChildOptions& options) {
  std::array<char, 1 + sizeof(int)> report{};
  if (read(status.get(), report.data(), report.size()) != static_cast<ssize_t>(report.size())) {
    return;  // exec closed it
  }
  int error = 0;
  std::memcpy(&error, report.data() + 1, sizeof error);
  require(report[0] != 'd', "cannot start in directory {}: {}; create it there, or use --push", options.directory,
          std::strerror(error));
  fail("cannot start {}: {}", options.arguments[0], std::strerror(error));
}

}  // namespace

Child start_child(const ChildOptions& options) {
  PipePair out = make_pipe();
  PipePair err = make_pipe();
  PipePair status = make_pipe();
  PipePair in;
  if (options.takes_input) {
    in = make_pipe();
  } else {
    in.read = Pipe(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> environment = whole_environment(options.environment);
  const ExecArguments prepared{pointers_to(arguments),
                               pointers_to(environment),
                               options.directory.c_str(),
                               in.read.get(),
                               out.write.get(),
                               err.write.get(),
                               status.write.get(),
                               options.inherits,
                               options.dies_with_us ? getpid() : 0,
                               options.deaf};
  const pid_t process = fork();
  require(process >= 0, "cannot start a process: {}", std::strerror(errno));
  if (process == 0) {
    exec_program(prepared);
  }
  status.write = Pipe();
  try {
    require_started(status.read, options);
  } catch (const Error&) {
    waitpid(process, nullptr, 0);
    throw;
  }
  for (const Pipe* pipe : {&in.write, &out.read, &err.read}) {
    if (pipe->open()) {
      set_nonblocking(*pipe);
    }
  }
  return {process, std::move(in.write), std::move(out.read), std::move(err.read)};
}

std::string describe_end(int wait_status) {
  return WIFSIGNALED(wait_status)
             ? fmt::format("was killed by signal {} ({})", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)))
             : fmt::format("exited with code {}", WEXITSTATUS(wait_status));
}

bool read_some(Pipe& pipe, std::string& bytes) {
  std::array<char, 65536> buffer{};
  const ssize_t count = pipe.open() ? read(pipe.get(), buffer.data(), buffer.size()) : 0;
  if (count > 0) {
    bytes.append(buffer.data(), static_cast<size_t>(count));
  } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
    pipe = Pipe();
  }
  return count > 0;
}

void write_some(Pipe& pipe, std::string& bytes) {
  while (pipe.open() && !bytes.empty()) {
    const ssize_t count = write(pipe.get(), bytes.data(), bytes.size());
    if (count > 0) {
      bytes.erase(0, static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      pipe = Pipe();
    }
  }
}

void set_nonblocking(const Pipe& pipe) { fcntl(pipe.get(), F_SETFL, fcntl(pipe.get(), F_GETFL) | O_NONBLOCK); }

bool PipeLines::read(Pipe& pipe, std::vector<std::string>& lines) {
  const bool some = read_some(pipe, bytes_);
  size_t begin = 0;
  for (size_t end = bytes_.find('\n'); end != std::string::npos; end = bytes_.find('\n', begin)) {
    lines.push_back(bytes_.substr(begin, end - begin));
    begin = end + 1;
  }
  bytes_.erase(0, begin);
  if (bytes_.size() > kLongestLine || (!pipe.open() && !bytes_.empty())) {
    lines.push_back(std::exchange(bytes_, {}));
  }
  return some;
}

}  // namespace tandem::launch
