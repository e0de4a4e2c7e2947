#include "report/watch_token.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>
#include <string_view>

#include "core/error.h"
#include "core/file.h"

namespace tandem::report {

namespace fs = std::filesystem;

namespace {

constexpr size_t kShortestToken = 16;

bool is_plain(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_'; }

// systemd gives numbers from 61184 on to services; 65534 is nobody.
bool is_person(unsigned user) { return user >= 1000 && (user < 61184 || user > 65534); }

bool can_log_in(std::string_view shell) { return !shell.ends_with("/nologin") && !shell.ends_with("/false"); }

}  // namespace

void require_sound_token(const std::string& token, const std::string& name) {
  require(token.size() >= kShortestToken, "{} has {} characters: {} or more are hard to guess", name, token.size(),
          kShortestToken);
  require(std::ranges::all_of(token, is_plain), "{} takes letters, digits, - and _ only", name);
}

std::string read_token(const fs::path& file) {
  struct stat facts {};
  require(::stat(file.c_str(), &facts) != 0 || facts.st_uid != geteuid() || (facts.st_mode & 077) == 0,
          "{} can be read by others: chmod 600 {}", file.string(), file.string());
  const std::string text = read_file(file, 4096);
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

bool is_shared_machine(unsigned self, const fs::path& accounts, const fs::path& processes) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> list(std::fopen(accounts.c_str(), "r"), &std::fclose);
  bool listed = false;
  for (const passwd* account = nullptr; list != nullptr && (account = fgetpwent(list.get())) != nullptr;) {
    listed |= account->pw_uid == self;
    if (account->pw_uid != self && is_person(account->pw_uid) && can_log_in(account->pw_shell)) {
      return true;
    }
  }
  std::error_code error;
  for (fs::directory_iterator at(processes, error), end; !error && at != end; at.increment(error)) {
    struct stat facts {};
    if (std::isdigit(static_cast<unsigned char>(at->path().filename().string()[0])) != 0 &&
        ::stat(at->path().c_str(), &facts) == 0 && facts.st_uid != self && is_person(facts.st_uid)) {
      return true;
    }
  }
  return !listed;
}

}  // namespace tandem::report
