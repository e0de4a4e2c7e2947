#include "end_to_end/program.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/philox.h"

namespace tandem::testing {

namespace fs = std::filesystem;

namespace {

pid_t spawn(const std::vector<std::string>& arguments, const fs::path& in, const fs::path& out, const fs::path& err,
            std::vector<std::string> environment = {}) {
  std::vector<std::string> all{TANDEM_BINARY};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& argument : all) {
    pointers.push_back(argument.data());
  }
  pointers.push_back(nullptr);
  const pid_t process = fork();
  if (process == 0) {
    const auto redirect = [](const fs::path& path, int flags, int to) {
      const int file = open(path.c_str(), flags, 0644);
      if (file < 0 || dup2(file, to) < 0) {
        _exit(126);
      }
    };
    for (std::string& variable : environment) {
      putenv(variable.data());
    }
    redirect(in, O_RDONLY, 0);
    redirect(out, O_WRONLY | O_CREAT | O_APPEND, 1);
    redirect(err, O_WRONLY | O_CREAT | O_APPEND, 2);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  return process;
}

// Words of a made-up language, and of the other one that is spoken backwards.
std::string pair_line(PhiloxStream& random, std::string& target) {
  static const char* const kWords[] = {"red", "blue", "green", "cat", "dog", "bird", "runs", "sleeps", "sings", "fast"};
  static const char* const kOther[] = {"rot",   "blau",  "gruen", "katze", "hund",
                                       "vogel", "rennt", "ruht",  "singt", "oft"};
  std::string source;
  target.clear();
  const uint64_t words = 2 + random.below(6);
  for (uint64_t i = 0; i < words; ++i) {
    const uint64_t word = random.below(10);
    source += fmt::format("{}{}", i == 0 ? "" : " ", kWords[word]);
    target = fmt::format("{}{}{}", kOther[word], i == 0 ? "" : " ", target);
  }
  return source;
}

}  // namespace

std::vector<pid_t> descendants(pid_t process) {
  std::vector<pid_t> found;
  for (const auto& thread : fs::directory_iterator(fmt::format("/proc/{}/task", process))) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;) {
      found.push_back(child);
      const std::vector<pid_t> more = descendants(child);
      found.insert(found.end(), more.begin(), more.end());
    }
  }
  return found;
}

pid_t start(const std::vector<std::string>& arguments, const fs::path& log,
            const std::vector<std::string>& environment) {
  return spawn(arguments, "/dev/null", log, log, environment);
}

namespace {

int code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace

int wait_for(pid_t process) {
  int status = 0;
  waitpid(process, &status, 0);
  return code_of(status);
}

bool has_ended(pid_t process, int& exit_code) {
  int status = 0;
  const bool ended = waitpid(process, &status, WNOHANG) == process;
  exit_code = ended ? code_of(status) : -1;
  return ended;
}

Result run(const std::vector<std::string>& arguments, const std::string& input,
           const std::vector<std::string>& environment) {
  const TemporaryDirectory directory;
  write_text(directory / "in", input);
  const int code = wait_for(spawn(arguments, directory / "in", directory / "out", directory / "err", environment));
  return {code, read_text(directory / "out"), read_text(directory / "err")};
}

std::string read_text(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  ASSERT_TRUE(file.good()) << path;
}

bool appears(const fs::path& file, const std::string& text) {
  for (int i = 0; i < 3000; ++i) {
    if (read_text(file).find(text) != std::string::npos) {
      return true;
    }
    usleep(10000);
  }
  return false;
}

void make_small_corpus(const TemporaryDirectory& directory) {
  PhiloxStream random(5, 5);
  for (const auto& [name, pairs] : {std::pair("train", 1500), std::pair("dev", 20)}) {
    std::string source, target, line;
    for (int i = 0; i < pairs; ++i) {
      source += pair_line(random, line) + "\n";
      target += line + "\n";
    }
    write_text(directory / (std::string(name) + ".en"), source);
    write_text(directory / (std::string(name) + ".de"), target);
  }
  write_text(directory / "config.toml", R"(
device = "cpu"
precision = "f32"
threads = 1
[model]
preset = "tiny"
encoder_layers = 1
decoder_layers = 1
width = 32
heads = 2
feed_forward = 64
max_length = 64
[batch]
tokens = 256
[schedule]
policy = "fixed_lr"
learning_rate = 0.003
[validation]
every_steps = 0
train_sample = 50
beam = 2
[checkpoint]
every_minutes = 0
[log]
every_steps = 20
)");
  const Result result = run({"prepare", "--source", directory.at("train.en"), "--target", directory.at("train.de"),
                             "--valid-source", directory.at("dev.en"), "--valid-target", directory.at("dev.de"),
                             "--vocab-size", "80", "--out", directory.at("data")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
}

std::vector<std::string> train_arguments(const TemporaryDirectory& directory, const std::string& run, int steps,
                                         const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"train", directory.at("config.toml"), "data=" + directory.at("data"),
                                     "run=" + directory.at(run), "stop.max_steps=" + std::to_string(steps)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::map<int, double> train_records(const fs::path& run, const std::string& field, int rank) {
  std::map<int, double> values;
  std::ifstream file(run / "metrics" / (std::to_string(rank) + ".jsonl"));
  const auto number = [](const std::string& line, const std::string& name) {
    const size_t at = line.find("\"" + name + "\":");
    return at == std::string::npos ? std::nan("") : std::strtod(line.c_str() + at + name.size() + 3, nullptr);
  };
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"kind\":\"train\"") != std::string::npos) {
      values[static_cast<int>(number(line, "step"))] = number(line, field);
    }
  }
  return values;
}

}  // namespace tandem::testing
