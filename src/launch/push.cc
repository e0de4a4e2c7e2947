#include <link.h>
#include <openssl/evp.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <sstream>

#include "core/error.h"
#include "core/log.h"
#include "dist/message.h"
#include "dist/world.h"
#include "launch/child.h"
#include "launch/launch.h"

namespace tandem::launch {

namespace fs = std::filesystem;

namespace {

constexpr size_t kDigits = 64;  // digits of a SHA-256

// The file, or all files below the directory.
std::vector<std::string> files_below(const std::string& path) {
  if (!fs::is_directory(path)) {
    require(fs::is_regular_file(path), "{} is neither a file nor a directory, so it cannot be pushed", path);
    return {path};
  }
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) {
      files.push_back(entry.path().string());
    }
  }
  return files;
}

// The libraries that this process has loaded, and its loader.
std::vector<std::string> own_libraries() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* list) {
        const std::string name = info->dlpi_name;
        const bool driver = name.find("libcuda.so") != std::string::npos || name.find("libnvidia") != std::string::npos;
        if (name.starts_with("/") && !driver) {
          static_cast<std::vector<std::string>*>(list)->push_back(name);
        }
        return 0;
      },
      &paths);
  return paths;
}

std::string loader_of(const std::vector<std::string>& libraries) {
  for (const std::string& path : libraries) {
    std::string name = fs::path(path).filename().string();
    if (name.starts_with("ld-linux") || name.starts_with("ld.so")) {
      return name;
    }
  }
  fail("the loader of this program was not found");
}

std::string first_line(const std::string& text) { return dist::printable(text.substr(0, text.find('\n')), 300); }

constexpr size_t kMostOutput = 64U << 20;

// The result of a shell command on a host that was reached through the agent command.
struct RemoteResult {
  int code = 0;
  std::string out, err;
};
// `input` is a file that becomes the command's standard input, or empty.
RemoteResult run_on_host(const Host& host, const std::string& agent_command, const std::string& command,
                         const std::string& input = "") {
  const IgnoredPipeSignal ignored;
  ChildOptions options;
  options.arguments = split_command(agent_command);
  options.arguments.push_back(host.name);
  options.arguments.push_back(command);
  options.takes_input = true;
  options.dies_with_us = true;
  Child child = start_child(options);
  std::ifstream file(input.empty() ? "/dev/null" : input, std::ios::binary);
  require(file.good(), "{} cannot be read", input);
  RemoteResult result;
  std::string piece;  // part of the file that is not yet written
  while (child.out.open() || child.err.open()) {
    std::vector<pollfd> events{
        {child.in.get(), POLLOUT, 0}, {child.out.get(), POLLIN, 0}, {child.err.get(), POLLIN, 0}};
    poll(events.data(), events.size(), 1000);  // closed ones are -1, which poll() ignores
    if (events[0].revents != 0 && piece.empty()) {
      piece.resize(1U << 18);
      file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      piece.resize(static_cast<size_t>(file.gcount()));
    }
    if (events[0].revents != 0 && piece.empty()) {
      child.in = Pipe();
    }
    write_some(child.in, piece);
    if (events[1].revents != 0) {
      read_some(child.out, result.out);
    }
    if (events[2].revents != 0) {
      read_some(child.err, result.err);
    }
    require(std::max(result.out.size(), result.err.size()) <= kMostOutput, "a command on another host prints too much");
  }
  int status = 0;
  waitpid(child.process, &status, 0);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

class Push {
 public:
  Push(const LaunchOptions& options, std::vector<std::string> paths) : options_(options), binary_(options.binary) {
    if (!dist::variable("TANDEM_PROGRAM").empty()) {  // script that runs another binary with libraries
      const fs::path folder = fs::path(binary_).parent_path();
      const bool beside = fs::exists(binary_ + ".bin");
      paths.push_back(binary_);
      paths.push_back(beside ? binary_ + ".bin" : (folder / "bin" / "tandem").string());
      paths.push_back(beside ? binary_ + ".lib" : (folder / "lib").string());
    }
    for (const std::string& path : paths) {
      for (const std::string& file : files_below(path)) {
        files_[file] = sha256_file(file);
      }
    }
  }

  void to(const Host& host) {
    if (is_this_host(host.name)) {
      return;
    }
    run(host, "mkdir -p " + shell_quoted(options_.directory));
    send_files(host, files_);
    send_binary(host);
  }

 private:
  using Files = std::map<std::string, std::string>;  // SHA-256 by path

  std::string run(const Host& host, const std::string& command, const std::string& input = "") {
    const RemoteResult result = run_on_host(host, options_.agent, command, input);
    require(result.code == 0, "host {}: `{}` failed with code {}: {}", host.name, dist::printable(command, 200),
            result.code, first_line(result.err));
    return result.out;
  }

  Files files_there(const Host& host, const Files& wanted) {
    std::string command = "sha256sum --";
    for (const auto& [path, hash] : wanted) {
      require(path.find_first_of("\\\n\r") == std::string::npos,
              "'{}' has a backslash or a line break in its name, which sha256sum prints in another way: rename it",
              dist::printable(path));
      command += fmt::format(" {}", shell_quoted(path));
    }
    std::istringstream lines(run(host, command + " 2>/dev/null; true"));
    Files there;
    for (std::string line; std::getline(lines, line);) {
      if (line.size() > kDigits + 2) {
        there[line.substr(kDigits + 2)] = line.substr(0, kDigits);
      }
    }
    return there;
  }

  // Puts what the command prints into the file. Until then it has a name that nobody can foresee and is nobody else's.
  void put(const Host& host, const std::string& command, const std::string& to, fs::perms mode,
           const std::string& input = "") {
    const fs::path folder = fs::path(to).parent_path();
    const std::string part = shell_quoted((folder / (".push-" + dist::random_token())).string());
    run(host,
        fmt::format("mkdir -p {} && (umask 077 && set -C && {} > {} && chmod {:o} {} && mv -f {} {}) || {{ rm -f {}; "
                    "exit 1; }}",
                    shell_quoted(folder.string()), command, part, static_cast<unsigned>(mode), part, part,
                    shell_quoted(to), part),
        input);
  }

  void send(const Host& host, const std::string& file, const std::string& to) {
    log::info("host {}: sending {} ({:.1f} MB)", host.name, to, static_cast<double>(fs::file_size(file)) / 1e6);
    put(host, "cat", to, fs::status(file).permissions() & fs::perms::all, file);
  }

  void send_files(const Host& host, const Files& files) {
    if (files.empty()) {
      return;
    }
    const Files there = files_there(host, files);
    bool sent = false;
    for (const auto& [path, hash] : files) {
      if (const auto found = there.find(path); found == there.end() || found->second != hash) {
        send(host, path, path);
        sent = true;
      }
    }
    const Files after = sent ? files_there(host, files) : there;
    for (const auto& [path, hash] : files) {
      require(after.contains(path) && after.at(path) == hash, "host {}: {} did not arrive unchanged", host.name, path);
    }
  }

  // A host with an older system gets the libraries too.
  void send_binary(const Host& host) {
    const std::string own = "/proc/self/exe";
    const std::string hash = sha256_file(own);
    const bool bundle = files_.contains(binary_);
    const std::string beside = binary_ + ".bin";
    const Files there = bundle ? Files{} : files_there(host, {{binary_, hash}, {beside, hash}});
    const auto same = [&](const std::string& path) { return there.contains(path) && there.at(path) == hash; };
    if (!bundle && !same(binary_) && !same(beside)) {
      send(host, own, binary_);
    }
    const std::string check = shell_quoted(binary_) + " --version";
    RemoteResult result = run_on_host(host, options_.agent, check);
    if (result.code != 0 && !bundle) {
      log::info("host {} cannot run the program ({}): sending its libraries too", host.name, first_line(result.err));
      send_libraries(host);
      result = run_on_host(host, options_.agent, check);
    }
    require(result.code == 0, "host {} cannot run {}: {}", host.name, binary_, first_line(result.err));
  }

  void send_libraries(const Host& host) {
    const std::vector<std::string> libraries = own_libraries();
    const std::string folder = binary_ + ".lib";
    for (const std::string& path : libraries) {
      send(host, path, folder + "/" + fs::path(path).filename().string());
    }
    send(host, "/proc/self/exe", binary_ + ".bin");
    const std::string script = fmt::format(
        "#!/bin/sh\\nhere=$(readlink -f \"$0\")\\nexport TANDEM_PROGRAM=\"$here\"\\nexec \"$here.lib/{}\" "
        "--library-path \"$here.lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\" \"$here.bin\" \"$@\"\\n",
        loader_of(libraries));
    put(host, "printf " + shell_quoted(script), binary_, fs::perms(0755));
  }

  const LaunchOptions& options_;
  const std::string& binary_;
  Files files_;
};

}  // namespace

std::string sha256_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "{} cannot be read", path);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  std::vector<char> bytes(1U << 20);
  while (file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())) || file.gcount() > 0) {
    EVP_DigestUpdate(context.get(), bytes.data(), static_cast<size_t>(file.gcount()));
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  require(EVP_DigestFinal_ex(context.get(), digest.data(), &size) == 1, "libcrypto cannot compute SHA-256");
  return dist::to_hex(std::span(digest.data(), size));
}

void push(const LaunchOptions& options, const std::vector<std::string>& paths) {
  Push push(options, paths);
  for (const Host& host : options.hosts) {
    push.to(host);
  }
}

}  // namespace tandem::launch
