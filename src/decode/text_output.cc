#include "decode/text_output.h"

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace tandem::decode {

TextOutput::TextOutput(const std::string& name) : name_(name == "-" ? "standard output" : name) {
  if (name == "-") {
    stream_ = stdout;
    return;
  }
  // Through links, so that a link stays one; absolute, so that there is a directory to write beside the file. A pipe
  // (/dev/stdout) has no path of its own.
  const auto type = std::filesystem::status(name).type();
  const bool a_file = type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found;
  require(type != std::filesystem::file_type::not_found || !std::filesystem::is_symlink(name),
          "cannot write {}: it is a link that leads nowhere", name);
  path_ = a_file ? std::filesystem::weakly_canonical(std::filesystem::absolute(name)) : std::filesystem::path(name);
  require(type != std::filesystem::file_type::directory, "cannot write {}: it is a directory", name);
  if (a_file) {
    require(std::filesystem::is_directory(path_.parent_path()), "cannot write {}: its directory does not exist", name);
    file_ = std::make_unique<FileWriter>(path_.parent_path() / fmt::format(".{}.partial", path_.filename().string()));
  } else {
    stream_ = std::fopen(path_.c_str(), "w");
    require(stream_ != nullptr, "cannot write {}: {}", name, std::strerror(errno));
  }
}

TextOutput::~TextOutput() {
  if (stream_ != nullptr && stream_ != stdout) {
    std::fclose(stream_);
  }
}

void TextOutput::write(std::string_view text) {
  if (file_) {
    file_->write(text);
    return;
  }
  const bool written = std::fwrite(text.data(), 1, text.size(), stream_) == text.size() && std::fflush(stream_) == 0;
  require(written, "cannot write to {}: {}", name_, std::strerror(errno));
}

void TextOutput::finish() {
  if (file_) {
    file_->finish();
    std::filesystem::rename(file_->path(), path_);
    sync_directory(path_.parent_path());
  }
}

}  // namespace tandem::decode
