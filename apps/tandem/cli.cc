#include "cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "core/error.h"

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

template <class T>
CLI::Option* add_option(CLI::App* app, const std::string& names, T& value, const std::string& help) {
  return app->add_option(names, value, help)->capture_default_str();
}

// The Levenshtein distance of two words.
size_t distance(const std::string& from, const std::string& to) {
  std::vector<size_t> row(to.size() + 1);  // from the letters of `from` so far to each prefix of `to`
  std::iota(row.begin(), row.end(), size_t{0});
  for (const char letter : from) {
    size_t diagonal = row[0]++;
    for (size_t i = 1; i < row.size(); ++i) {
      const size_t replaced = diagonal + (letter == to[i - 1] ? 0 : 1);
      diagonal = row[i];
      row[i] = std::min({row[i] + 1, row[i - 1] + 1, replaced});
    }
  }
  return row.back();
}

// The command that differs from the word in at most two letters, and less than by half of it; or nothing.
std::string nearest(const std::string& word, const std::vector<std::string>& commands) {
  std::string found;
  size_t least = std::min<size_t>(2, (word.size() - 1) / 2) + 1;
  for (const std::string& command : commands) {
    if (const size_t letters = distance(word, command); letters < least) {
      least = letters;
      found = command;
    }
  }
  return found;
}

}  // namespace

Command& Command::option(const std::string& names, std::string& value, const std::string& help) {
  impl_->last = add_option(impl_->app, names, value, help);
  return *this;
}
Command& Command::option(const std::string& names, int64_t& value, const std::string& help) {
  impl_->last = add_option(impl_->app, names, value, help);
  return *this;
}
Command& Command::option(const std::string& names, uint64_t& value, const std::string& help) {
  impl_->last = add_option(impl_->app, names, value, help);
  return *this;
}
Command& Command::option(const std::string& names, int& value, const std::string& help) {
  impl_->last = add_option(impl_->app, names, value, help);
  return *this;
}
Command& Command::option(const std::string& names, double& value, const std::string& help) {
  impl_->last = add_option(impl_->app, names, value, help);
  return *this;
}
Command& Command::option(const std::string& names, std::vector<std::string>& values, const std::string& help) {
  impl_->last = impl_->app->add_option(names, values, help);
  return *this;
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
