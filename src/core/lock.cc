#include "core/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace tandem::inline core {

namespace {

// "123 host", as its holder wrote it.
std::string holder(int fd) {
  std::array<char, 300> text{};
  const ssize_t count = ::pread(fd, text.data(), text.size(), 0);
  std::string line(text.data(), count > 0 ? static_cast<size_t>(count) : 0);
  line = line.substr(0, line.find('\n'));
  const size_t space = line.find(' ');
  if (space == 0 || space == std::string::npos) {
    return "another process";
  }
  return fmt::format("process {} on {}", line.substr(0, space), line.substr(space + 1));
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "localhost";
}

FileLock::FileLock(const std::filesystem::path& path, const std::string& what)
    : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  require(fd_ >= 0, "cannot write {}: {}", path.string(), std::strerror(errno));
  int result = 0;
  do {
    result = ::flock(fd_, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result == 0) {
    const std::string line = fmt::format("{} {}\n", ::getpid(), host_name());
    // The words only help a reader; the lock holds without them, so a full disk is no reason to stop here.
    [[maybe_unused]] const bool written =
        ::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, line.data(), line.size(), 0) == static_cast<ssize_t>(line.size());
    return;
  }
  const int error = errno;
  const std::string who = holder(fd_);
  ::close(fd_);
  require(error == EWOULDBLOCK, "cannot lock {}: {}", path.string(), std::strerror(error));
  fail("{} is in use by {}; wait for it to end, stop it, or choose another directory", what, who);
}

FileLock::~FileLock() { ::close(fd_); }

}  // namespace tandem::inline core
