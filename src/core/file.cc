#include "core/file.h"

#include <fcntl.h>
#include <isa-l/crc64.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/log.h"

namespace tandem::inline core {

namespace fs = std::filesystem;

namespace {

constexpr size_t kBlock = size_t{1} << 20;

[[noreturn]] void fail_system(const char* action, const fs::path& path, int error = errno) {
  const char* advice = error == ENOSPC || error == EDQUOT ? "; free some space and run again" : "";
  fail("cannot {} {}: {}{}", action, path.string(), std::strerror(error), advice);
}

void sync_path(const fs::path& path, int flags) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  // Some file systems (SMB, FUSE) have no fsync of directories: there a rename is as durable as they make it.
  const auto unknown = [&] { return (flags & O_DIRECTORY) != 0 && (errno == EINVAL || errno == ENOTSUP); };
  if (!file.open() || (::fsync(file.get()) != 0 && !unknown())) {
    fail_system("write to disk", path);
  }
}

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// Removes a slash at the end: "dir/" and "dir" are the same directory.
fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

// Renames the directory, or exchanges the two names if `to` exists. File systems without these calls (NFS) get the
// closest equivalent, in which `to` is absent for a moment.
bool put_in_place(const fs::path& from, const fs::path& to, bool exchange) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), exchange ? RENAME_EXCHANGE : RENAME_NOREPLACE) == 0) {
    return true;
  }
  if (errno != EINVAL && errno != ENOSYS) {
    return false;
  }
  if (!exchange) {
    return ::rename(from.c_str(), to.c_str()) == 0;
  }
  const fs::path old = from.string() + ".old";
  return ::rename(to.c_str(), old.c_str()) == 0 && ::rename(from.c_str(), to.c_str()) == 0 &&
         ::rename(old.c_str(), from.c_str()) == 0;
}

// Removes partial directories that no process locks any more.
void remove_abandoned(const fs::path& parent, const std::string& prefix) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().string().starts_with(prefix)) {
      continue;
    }
    const Descriptor directory(::open(entry.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory.open() && ::flock(directory.get(), LOCK_EX | LOCK_NB) == 0) {
      fs::remove_all(entry.path(), ignored);
    }
  }
}

// The holder, which the lock file names as "123 host".
std::string holder(const Descriptor& file) {
  std::array<char, 300> text{};
  const ssize_t count = ::pread(file.get(), text.data(), text.size(), 0);
  std::string line(text.data(), count > 0 ? static_cast<size_t>(count) : 0);
  line = line.substr(0, line.find('\n'));
  const size_t space = line.find(' ');
  if (space == 0 || space == std::string::npos) {
    return "another process";
  }
  return fmt::format("process {} on {}", line.substr(0, space), line.substr(space + 1));
}

}  // namespace

void Checksum::add(const void* data, size_t bytes) {
  value_ = crc64_ecma_refl(value_, static_cast<const unsigned char*>(data), bytes);
}

std::string Checksum::hex() const { return fmt::format("{:016x}", value_); }

std::string checksum(std::string_view data) {
  Checksum sum;
  sum.add(data);
  return sum.hex();
}

Descriptor::~Descriptor() {
  if (value_ >= 0) {
    ::close(value_);
  }
}

Descriptor open_to_read(const fs::path& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) {
    fail_system("read", path);
  }
  return file;
}

size_t read_some(const Descriptor& file, char* buffer, size_t bytes, const fs::path& name) {
  while (true) {
    const ssize_t count = ::read(file.get(), buffer, bytes);
    if (count >= 0) {
      return static_cast<size_t>(count);
    }
    if (errno != EINTR) {
      fail_system("read", name);
    }
  }
}

void read_at(const Descriptor& file, void* buffer, size_t bytes, uint64_t offset, const fs::path& name) {
  auto* next = static_cast<char*>(buffer);
  while (bytes > 0) {
    const ssize_t count = ::pread(file.get(), next, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      fail_system("read", name);
    }
    require(count > 0, "{} ended early: it became shorter while it was read", name.string());
    next += count;
    offset += static_cast<uint64_t>(count);
    bytes -= static_cast<size_t>(count);
  }
}

std::string checksum_file(const fs::path& path) {
  const Descriptor file = open_to_read(path);
  std::vector<char> buffer(kBlock);
  Checksum sum;
  while (const size_t count = read_some(file, buffer.data(), buffer.size(), path)) {
    sum.add(buffer.data(), count);
  }
  return sum.hex();
}

std::string read_file(const fs::path& path, uint64_t limit) {
  const Descriptor file = open_to_read(path);
  std::string content;
  std::vector<char> buffer(kBlock);
  while (const size_t count = read_some(file, buffer.data(), buffer.size(), path)) {
    require(content.size() + count <= limit, "{} is larger than the {} bytes that such a file may have", path.string(),
            limit);
    content.append(buffer.data(), count);
  }
  return content;
}

std::string read_small_file(const fs::path& path, size_t most) {
  std::error_code error;
  const bool readable = fs::is_regular_file(path, error) && fs::file_size(path, error) <= most;
  return readable && !error ? read_file(path, most) : "";
}

void write_file(const fs::path& path, std::string_view content) {
  const fs::path aside = path.string() + fmt::format(".partial.{}", ::getpid());
  FileWriter writer(aside);
  writer.write(content);
  writer.finish();
  if (::rename(aside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(aside.c_str());
    fail_system("write", path, error);
  }
  sync_directory(parent_of(path));
}

void make_directory(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    fail_system("create", path, error.value());
  }
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) {
    fail_system("remove", path, error.value());
  }
}

void sync_directory(const fs::path& directory) { sync_path(directory, O_DIRECTORY); }

FileWriter::FileWriter(const fs::path& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (!file_.open()) {
    fail_system("write", path);
  }
  buffer_.reserve(kBlock);
}

FileWriter::~FileWriter() {
  if (file_.open()) {
    ::unlink(path_.c_str());
  }
}

void FileWriter::write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  sum_.add(data, bytes);
  size_ += bytes;
  while (bytes > 0) {
    const size_t part = std::min(bytes, kBlock - buffer_.size());
    buffer_.append(next, part);
    next += part;
    bytes -= part;
    if (buffer_.size() == kBlock) {
      flush();
    }
  }
}

void FileWriter::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t count = ::write(file_.get(), rest.data(), rest.size());
    if (count >= 0) {
      rest.remove_prefix(static_cast<size_t>(count));
    } else if (errno != EINTR) {
      fail_system("write", path_);
    }
  }
  buffer_.clear();
}

void FileWriter::finish(bool durable) {
  flush();
  if ((durable && ::fsync(file_.get()) != 0) || ::close(file_.release()) != 0) {
    fail_system("write", path_);
  }
}

NewDirectory::NewDirectory(const fs::path& path, bool replace) : path_(without_slash(path)), replace_(replace) {
  require(path_.has_filename(), "'{}' is not the name of a directory to write", path.string());
  std::error_code error;
  const bool exists = fs::exists(fs::symlink_status(path_, error));
  require(!exists || replace_, "{} exists already; choose another name or allow it to be replaced", path_.string());
  require(!exists || fs::is_directory(path_, error), "{} exists and is not a directory", path_.string());
  const fs::path parent = parent_of(path_);
  make_directory(parent);
  const std::string prefix = fmt::format(".{}.partial.", path_.filename().string());
  remove_abandoned(parent, prefix);
  std::string name = (parent / (prefix + "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) {
    fail_system("create a directory beside", path_);
  }
  temporary_ = name;
  lock_ = Descriptor(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ::flock(lock_.get(), LOCK_EX | LOCK_NB);
}

NewDirectory::~NewDirectory() {
  if (!committed_) {
    std::error_code error;
    fs::remove_all(temporary_, error);
    if (error) {
      log::warning("cannot remove {}: {}", temporary_.string(), error.message());
    }
  }
}

void NewDirectory::commit() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::chmod(temporary_.c_str(), 0777 & ~mask) != 0) {  // mkdtemp gave access to the owner only
    fail_system("change the permissions of", temporary_);
  }
  for (const auto& entry : fs::recursive_directory_iterator(temporary_)) {
    sync_path(entry.path(), entry.is_directory() ? O_DIRECTORY : 0);
  }
  sync_directory(temporary_);
  const bool exchange = replace_ && fs::exists(path_);
  if (!put_in_place(temporary_, path_, exchange)) {
    fail_system("put the complete directory in place as", path_);
  }
  committed_ = true;
  sync_directory(parent_of(path_));
  if (exchange) {  // the old directory now has the temporary name
    std::error_code error;
    fs::remove_all(temporary_, error);
  }
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "localhost";
}

FileLock::FileLock(const std::filesystem::path& path, const std::string& what)
    : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  require(file_.open(), "cannot write {}: {}", path.string(), std::strerror(errno));
  int result = 0;
  do {
    result = ::flock(file_.get(), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result == 0) {
    const std::string line = fmt::format("{} {}\n", ::getpid(), host_name());
    // The text only informs readers; the lock works without it, so a full disk is not an error.
    [[maybe_unused]] const bool written =
        ::ftruncate(file_.get(), 0) == 0 &&
        ::pwrite(file_.get(), line.data(), line.size(), 0) == static_cast<ssize_t>(line.size());
    return;
  }
  require(errno == EWOULDBLOCK, "cannot lock {}: {}", path.string(), std::strerror(errno));
  fail("{} is in use by {}; wait for it to end, stop it, or choose another directory", what, holder(file_));
}

}  // namespace tandem::inline core
