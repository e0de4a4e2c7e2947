// Reads files with any content, writes files that are either complete or absent, and locks files.
//
// Every failure is a one-line error that names the file and the system's reason. A write is not done until the bytes
// and the directory entry are on disk (fsync), so that a reader never meets half a file, even after a power cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace tandem::inline core {

// CRC-64/XZ (ECMA-182, reflected). Detects every flipped bit and every damaged run of up to 64 bits, and other damage
// except for one case in 2^64; it is no protection against an attacker. Runs at memory speed (ISA-L).
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

// An open file, pipe or socket, closed when the object ends.
class Descriptor {
 public:
  Descriptor() = default;  // not open
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor();

  int get() const { return value_; }
  bool open() const { return value_ >= 0; }
  int release() { return std::exchange(value_, -1); }  // the caller must close it

 private:
  int value_ = -1;
};

Descriptor open_to_read(const std::filesystem::path& path);
// Reads at most `bytes`, and returns how many; 0 at the end of the file. `name` stands for the file in messages.
size_t read_some(const Descriptor& file, char* buffer, size_t bytes, const std::filesystem::path& name);
// Reads exactly these bytes. Thread-safe.
void read_at(const Descriptor& file, void* buffer, size_t bytes, uint64_t offset, const std::filesystem::path& name);

// The whole content. Fails for a missing file, a directory, and a file of more than `limit` bytes.
std::string read_file(const std::filesystem::path& path, uint64_t limit = uint64_t{1} << 30);
// The content of an optional small file: empty unless `path` is a regular file of at most `most` bytes.
std::string read_small_file(const std::filesystem::path& path, size_t most = 1 << 20);

// Replaces the file atomically (writes and fsyncs a temporary file, renames it): readers see the old content or the
// new.
void write_file(const std::filesystem::path& path, std::string_view content);

// Creates the directory and its missing parents; removes the path with everything below it.
void make_directory(const std::filesystem::path& path);
void remove_tree(const std::filesystem::path& path);

// Makes a directory's entries (created, renamed and removed names) durable.
void sync_directory(const std::filesystem::path& directory);

// Sequential, buffered writing with a running checksum. The file is removed again unless finish() was called.
class FileWriter {
 public:
  // Creates or empties the file.
  explicit FileWriter(const std::filesystem::path& path);
  ~FileWriter();

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
  Descriptor file_;
  std::string buffer_;
  uint64_t size_ = 0;
  Checksum sum_;
};

// A directory that appears completely or not at all. It is filled under a hidden name next to the final one
// (".<name>.partial.<random>"), and commit() renames it; without commit() the destructor removes it. Each is locked
// while its owner lives; one that a killed process left behind is removed by the next one with the same final name.
class NewDirectory {
 public:
  // If `replace`, commit() replaces an existing directory; otherwise an existing one is an error, now and at commit.
  // Missing parents are created.
  explicit NewDirectory(const std::filesystem::path& path, bool replace = false);
  ~NewDirectory();

  const std::filesystem::path& temporary() const { return temporary_; }  // write the files here
  // Fsyncs every file below and the directories, renames, fsyncs the parent.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  bool replace_, committed_ = false;
  Descriptor lock_;
};

std::string host_name();  // this machine's name; "localhost" if it has none

// An exclusive lock on a file, held while the object lives; the kernel releases it if the process dies.
class FileLock {
 public:
  // Creates the file if needed and writes this process's id and host into it. If another process holds the lock, fails
  // with "<what> is in use by process 123 on host" and what to do.
  FileLock(const std::filesystem::path& path, const std::string& what);

 private:
  Descriptor file_;
};

}  // namespace tandem::inline core
