// An exclusive lock on a file, held while the object lives; the kernel releases it if the process dies.
#pragma once

#include <filesystem>
#include <string>

namespace tandem::inline core {

std::string host_name();  // this machine's name; "localhost" if it has none

class FileLock {
 public:
  // Creates the file if needed and writes this process's id and host into it. If another process holds the lock, fails
  // with "<what> is in use by process 123 on host" and what to do.
  FileLock(const std::filesystem::path& path, const std::string& what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace tandem::inline core
