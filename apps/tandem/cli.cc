#include "cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "core/error.h"
#include "core/parse.h"

namespace tandem::cli {

Command& Command::flag(const std::string& names, bool& value, const std::string& help) {
  last_ = app_->add_flag(names, value, help);
  return *this;
}

namespace {

// The command that differs from the word in at most two letters, and in less than half of the word; or nothing.
std::string nearest(const std::string& word, const std::vector<std::string>& commands) {
  std::string found;
  size_t least = std::min<size_t>(2, (word.size() - 1) / 2) + 1;
  for (const std::string& command : commands) {
    if (const size_t letters = edit_distance(word, command); letters < least) {
      least = letters;
      found = command;
    }
  }
  return found;
}

}  // namespace

Command& Command::no_flag(const std::string& names, bool& value, const std::string& help) {
  last_ = app_->add_flag_callback(
      names, [&value] { value = false; }, help);
  return *this;
}

template <class T>
Command& Command::option(const std::string& names, T& value, const std::string& help) {
  last_ = app_->add_option(names, value, help);
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    last_->capture_default_str();
  }
  return *this;
}
template Command& Command::option(const std::string&, std::string&, const std::string&);
template Command& Command::option(const std::string&, std::filesystem::path&, const std::string&);
template Command& Command::option(const std::string&, std::vector<std::string>&, const std::string&);
template Command& Command::option(const std::string&, int&, const std::string&);
template Command& Command::option(const std::string&, int64_t&, const std::string&);
template Command& Command::option(const std::string&, uint64_t&, const std::string&);
template Command& Command::option(const std::string&, double&, const std::string&);

Command& Command::choice(const std::string& names, const std::vector<std::string>& words, size_t usual,
                         const std::function<void(size_t)>& set, const std::string& help) {
  const auto take = [words, set](const std::string& word) {
    set(static_cast<size_t>(std::ranges::find(words, word) - words.begin()));
  };
  last_ = app_->add_option_function<std::string>(names, take, help)->default_str(words[usual]);
  return choices(words);
}

Command& Command::required() {
  last_->required();
  return *this;
}

Command& Command::choices(const std::vector<std::string>& names) {
  last_->check(CLI::IsMember(names));
  return *this;
}

Command& Command::excludes(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    last_->excludes(app_->get_option(name));
  }
  return *this;
}

Command& Command::hidden() {
  app_->group("");
  return *this;
}

Command& Command::example(const std::string& text) {
  app_->footer("Example:\n  " + text);
  return *this;
}

Command& Command::run(std::function<void()> action) {
  app_->callback(std::move(action));
  return *this;
}

Program::Program(const std::string& name, const std::string& help, const std::string& version)
    : app_(std::make_unique<CLI::App>(help, name)) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
}

Program::~Program() = default;

Command Program::add(const std::string& name, const std::string& help) {
  return Command(app_->add_subcommand(name, help));
}

int Program::run(int argc, char** argv) {
  std::vector<std::string> names;
  for (const CLI::App* command : app_->get_subcommands({})) {
    names.push_back(command->get_name());
  }
  const std::string first = argc > 1 ? argv[1] : "-";
  if (!first.starts_with('-') && std::ranges::find(names, first) == names.end()) {
    const std::string meant = first.empty() ? "" : nearest(first, names);
    std::fprintf(stderr, "%s: there is no command '%s'; %s--help lists all commands\n", app_->get_name().c_str(),
                 first.c_str(), meant.empty() ? "" : ("did you mean '" + meant + "'? ").c_str());
    return 2;
  }
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? 0 : 2;
  }
  return 0;
}

void print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  require(written, "cannot write to standard output");
}

}  // namespace tandem::cli
