// Reads files that may hold anything, writes files that are either complete or absent, and locks files.
//
// Every failure is a one-line error that names the file and the system's reason. A write is not done until the bytes
// and the directory entry are on disk (fsync), so that a reader never meets half a file, even after a power cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace tandem::inline core {

// CRC-64/XZ (ECMA-182, reflected). Finds every flipped bit and every damaged run of up to 64 bits, and any other damage
// but for one case in 2^64; it is no protection against an attacker. Runs at memory speed (ISA-L).
class Checksum {
 public:
  void add(const void* data, size_t bytes);
  void add(std::string_view data) { add(data.data(), data.size()); }
  uint64_t value() const { return value_; }
  std::string hex() const;  // 16 digits

 private:
  uint64_t value_ = 0;
};

std::string checksum(std::string_view data);
// Reads the file in blocks, so its size does not matter.
std::string checksum_file(const std::filesystem::path& path);

// The whole content. Fails for a missing file, a directory, and a file of more than `limit` bytes.
std::string read_file(const std::filesystem::path& path, uint64_t limit = uint64_t{1} << 30);
// The content of a small file that a run can do without: empty unless `path` is a regular file of at most `most` bytes.
std::string read_small_file(const std::filesystem::path& path, size_t most = 1 << 20);

// Replaces the file atomically (writes and fsyncs a temporary file, renames it): readers see the old content or the
// new.
void write_file(const std::filesystem::path& path, std::string_view content);

// Makes a directory's entries (created, renamed and removed names) durable.
void sync_directory(const std::filesystem::path& directory);

// Sequential, buffered writing with a running checksum. The file is removed again unless finish() was called.
class FileWriter {
 public:
  // Creates or empties the file.
  explicit FileWriter(const std::filesystem::path& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view data) { write(data.data(), data.size()); }
  // Writes the buffer, fsyncs (a scratch file need not be durable) and closes.
  void finish(bool durable = true);

  uint64_t size() const { return size_; }              // bytes written
  std::string checksum() const { return sum_.hex(); }  // covers these bytes
  const std::filesystem::path& path() const { return path_; }

 private:
  void flush();

  std::filesystem::path path_;
  int file_ = -1;
  std::string buffer_;
  uint64_t size_ = 0;
  Checksum sum_;
};

// A directory that appears complete or not at all. It is filled under a hidden name beside the final one
// (".<name>.partial.<random>"), and commit() renames it. Without commit() the destructor removes it. A partial
// directory that a killed process left behind under the same final name is removed by the next one (each is locked
// while its owner lives).
class NewDirectory {
 public:
  // With `replace`, commit() replaces an existing directory; without it, an existing one is an error, both now and at
  // commit. Missing parents are created.
  explicit NewDirectory(const std::filesystem::path& path, bool replace = false);
  ~NewDirectory();
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  const std::filesystem::path& temporary() const { return temporary_; }  // write the files here
  // Fsyncs every file below and the directories, renames, fsyncs the parent.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  bool replace_, committed_ = false;
  int lock_ = -1;
};

std::string host_name();  // this machine's name; "localhost" if it has none

// An exclusive lock on a file, held while the object lives; the kernel releases it if the process dies.
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
