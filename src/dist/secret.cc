#include "dist/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/file.h"
#include "dist/message.h"
#include "dist/world.h"

namespace tandem::dist {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShortest = 22;  // characters: 128 bits in base 64
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

std::string read_secret(const fs::path& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  require(file.open(), "the secret's file {} cannot be read: {}", path.string(), std::strerror(errno));
  struct stat found {};
  require(fstat(file.get(), &found) == 0 && S_ISREG(found.st_mode), "the secret's file {} is not a regular file",
          path.string());
  require((found.st_mode & kOthers) == 0, "others may read the secret's file {}: chmod 600 {}", path.string(),
          path.string());
  std::string text(4096, '\0');
  text.resize(read_some(file, text.data(), text.size(), path));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

}  // namespace

std::string given_secret() {
  const std::string value = variable("TANDEM_SECRET");
  const std::string path = variable("TANDEM_SECRET_FILE");
  if (value.empty() && path.empty()) {
    return "";
  }
  std::string secret = value.empty() ? read_secret(path) : value;
  require(secret.size() >= kShortest,
          "the secret in {} has {} characters, and must have at least {}: `tandem secret` prints a new one",
          value.empty() ? path : "TANDEM_SECRET", secret.size(), kShortest);
  return secret;
}

std::string secret_on_this_host(const std::string& job) {
  const fs::path directory = fs::temp_directory_path() / fmt::format("tandem-{}", geteuid());
  mkdir(directory.c_str(), S_IRWXU);
  struct stat found {};
  require(lstat(directory.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
              (found.st_mode & kOthers) == 0,
          "{} is not a directory that only you may use, so the ranks cannot share a secret there: remove it, or set "
          "TANDEM_SECRET to what `tandem secret` prints",
          directory.string());
  const fs::path key = directory / "secret";
  if (!fs::exists(key)) {  // of several that make it at once, the first counts
    const fs::path made = directory / random_token();
    const Descriptor file(open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
    const std::string text = random_token();
    const bool written = write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const bool there = written && (link(made.c_str(), key.c_str()) == 0 || errno == EEXIST);
    const int error = errno;
    unlink(made.c_str());
    require(there, "{} cannot be written: {}", key.string(), std::strerror(error));
  }
  const std::string mixed = proof(read_secret(key), {job});
  return to_hex(std::span(reinterpret_cast<const unsigned char*>(mixed.data()), mixed.size()));
}

}  // namespace tandem::dist
