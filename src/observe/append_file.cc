#include "observe/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/log.h"

namespace tandem::observe {

AppendFile::AppendFile(const std::filesystem::path& path, bool must_be_new) : path_(path) {
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (must_be_new ? O_EXCL : 0), 0644);
  require(file_ >= 0, "cannot write {}: {}; check that the directory is there and writable", path.string(),
          std::strerror(errno));
  struct stat status {};
  size_ = fstat(file_, &status) == 0 ? status.st_size : 0;
}

AppendFile::~AppendFile() { close(file_); }

void AppendFile::append(std::string_view piece) {
  if (broken_) {
    return;
  }
  size_t done = 0;
  while (done < piece.size()) {
    const ssize_t written = write(file_, piece.data() + done, piece.size() - done);
    if (written < 0 && errno != EINTR) {
      if (!std::exchange(warned_, true)) {
        log::warning("cannot write {}: {}; training goes on, records are lost until there is room", path_.string(),
                     std::strerror(errno));
      }
      broken_ = done > 0 && ftruncate(file_, size_) != 0;
      return;
    }
    done += static_cast<size_t>(written > 0 ? written : 0);
  }
  size_ += static_cast<int64_t>(piece.size());
}

void AppendFile::truncate(int64_t size) {
  require(ftruncate(file_, size) == 0, "cannot shorten {} to {} bytes: {}", path_.string(), size, std::strerror(errno));
  size_ = size;
}

void AppendFile::sync() { fdatasync(file_); }

Descriptor AppendFile::duplicate() const { return Descriptor(fcntl(file_, F_DUPFD_CLOEXEC, 0)); }

}  // namespace tandem::observe
