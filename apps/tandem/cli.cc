#include "cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "core/error.h"
#include "core/parse.h"

namespace tandem::cli {

struct Command::Impl {
  CLI::App* app = nullptr;
  CLI::Option* last = nullptr;
  std::function<void()> action;
};

struct Program::State {
  CLI::App app;
  std::vector<std::unique_ptr<Command::Impl>> commands;
};

Command& Command::flag(const std::string& names, bool& value, const std::string& help) {
  impl_->last = impl_->app->add_flag(names, value, help);
  return *this;
}

namespace {

// The command that differs from the word in at most two letters, and less than by half of it; or nothing.
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
  impl_->last = impl_->app->add_flag_callback(
      names, [&value] { value = false; }, help);
  return *this;
}

template <class T>
Command& Command::option(const std::string& names, T& value, const std::string& help) {
  impl_->last = impl_->app->add_option(names, value, help);
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    impl_->last->capture_default_str();
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
  impl_->last = impl_->app->add_option_function<std::string>(names, take, help)->default_str(words[usual]);
  return choices(words);
}

Command& Command::required() {
  impl_->last->required();
  return *this;
}

Command& Command::choices(const std::vector<std::string>& names) {
  impl_->last->check(CLI::IsMember(names));
  return *this;
}

Command& Command::excludes(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    impl_->last->excludes(impl_->app->get_option(name));
  }
  return *this;
}

Command& Command::hidden() {
  impl_->app->group("");
  return *this;
}

Command& Command::example(const std::string& text) {
  impl_->app->footer("Example:\n  " + text);
  return *this;
}

Command& Command::run(std::function<void()> action) {
  impl_->action = std::move(action);
  return *this;
}

Program::Program(const std::string& name, const std::string& help, const std::string& version)
    : state_(std::make_unique<State>()) {
  state_->app.name(name);
  state_->app.description(help);
  state_->app.set_version_flag("--version", version);
  state_->app.require_subcommand(1);
}

Program::~Program() = default;

Command Program::add(const std::string& name, const std::string& help) {
  auto impl = std::make_unique<Command::Impl>();
  impl->app = state_->app.add_subcommand(name, help);
  state_->commands.push_back(std::move(impl));
  return Command(state_->commands.back().get());
}

int Program::run(int argc, char** argv) {
  std::vector<std::string> names;
  for (const auto& command : state_->commands) {
    names.push_back(command->app->get_name());
  }
  const std::string first = argc > 1 ? argv[1] : "-";
  if (!first.starts_with('-') && std::ranges::find(names, first) == names.end()) {
    const std::string meant = first.empty() ? "" : nearest(first, names);
    std::fprintf(stderr, "%s: there is no command '%s'; %s--help lists all commands\n", state_->app.get_name().c_str(),
                 first.c_str(), meant.empty() ? "" : ("did you mean '" + meant + "'? ").c_str());
    return 2;
  }
  try {
    state_->app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return state_->app.exit(error) == 0 ? 0 : 2;
  }
  for (const auto& command : state_->commands) {
    if (command->app->parsed()) {
      command->action();
    }
  }
  return 0;
}

void print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  require(written, "cannot write to standard output");
}

}  // namespace tandem::cli
