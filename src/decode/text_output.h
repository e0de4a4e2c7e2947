// Where a command's text goes: standard output, or a file that appears complete or not at all.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/file.h"

namespace tandem::decode {

class TextOutput {
 public:
  // "-" is standard output. A file is written aside and takes its name in finish(); a device or pipe is written to as
  // it is. Fails at once when it cannot be written.
  explicit TextOutput(const std::string& name);
  ~TextOutput();
  TextOutput(const TextOutput&) = delete;
  TextOutput& operator=(const TextOutput&) = delete;

  void write(std::string_view text);
  void finish();

  bool is_file() const { return file_ != nullptr; }

 private:
  std::string name_;
  std::filesystem::path path_;        // the file's final name
  std::unique_ptr<FileWriter> file_;  // a regular file
  std::FILE* stream_ = nullptr;       // anything else
};

}  // namespace tandem::decode
