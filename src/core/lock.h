// An exclusive lock on a file, held while the object lives and given back by the kernel when the process dies.
#pragma once

#include <filesystem>
#include <string>

namespace tandem {

std::string host_name();  // this machine's name; "localhost" if it has none

class FileLock {
 public:
  // Creates the file where needed and writes this process's id and host into it. When another process holds the lock,
  // fails with one sentence: "<what> is in use by process 123 on host", and what to do.
  FileLock(const std::filesystem::path& path, const std::string& what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace tandem
