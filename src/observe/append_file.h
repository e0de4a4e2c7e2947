// A file that grows by whole pieces: a piece is there completely or not at all.
//
// Every piece goes to the kernel at once (one write call, microseconds), so a killed process loses none. Once the file
// is open, append() and sync() never fail: data that cannot be written (full disk) is dropped, with one warning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "core/file.h"

namespace tandem::observe {

class AppendFile {
 public:
  // Opens at the end, creating the file if needed; with `must_be_new` an existing file is an error.
  explicit AppendFile(const std::filesystem::path& path, bool must_be_new = false);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view piece);
  void truncate(int64_t size);   // fails if the system refuses
  void sync();                   // flushes to the disk
  Descriptor duplicate() const;  // the open file, for a thread that flushes it

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const { return size_; }

 private:
  std::filesystem::path path_;
  int file_ = -1;
  int64_t size_ = 0;
  bool warned_ = false;
  bool broken_ = false;  // a partly written piece could not be removed: no more is written
};

}  // namespace tandem::observe
