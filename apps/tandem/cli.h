// The command line, reduced to what the subcommands need. CLI11 is used only in cli.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tandem::cli {

// One subcommand: its options write to variables that must live as long as the command.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // names: such as "-o,--out"; a name without dashes is a positional argument.
  Command& flag(const std::string& names, bool& value, const std::string& help);
  Command& no_flag(const std::string& names, bool& value, const std::string& help);  // if given, `value` is false
  // The value may be a text, a path, a number, or a list of texts (one or more).
  template <class T>
  Command& option(const std::string& names, T& value, const std::string& help);
  // Takes one of these words; they stand for the values of the enumeration, in its order.
  template <class Enum>
  Command& choice(const std::string& names, Enum& value, const std::vector<std::string>& words,
                  const std::string& help) {
    const auto set = [&value](size_t word) { value = static_cast<Enum>(word); };
    return choice(names, words, static_cast<size_t>(value), set, help);
  }
  Command& required();                                       // the option declared last must be given
  Command& choices(const std::vector<std::string>& names);   // the option declared last takes one of these
  Command& excludes(const std::vector<std::string>& names);  // the option declared last rules out these earlier ones
  Command& hidden();                                         // leaves it out of the list of commands
  Command& example(const std::string& text);                 // shown at the end of --help
  Command& run(std::function<void()> action);                // called if the command is chosen

 private:
  Command& choice(const std::string& names, const std::vector<std::string>& words, size_t usual,
                  const std::function<void(size_t)>& set, const std::string& help);

  CLI::App* app_;
  CLI::Option* last_ = nullptr;
};

class Program {
 public:
  Program(const std::string& name, const std::string& help, const std::string& version);
  ~Program();

  Command add(const std::string& name, const std::string& help);
  // Parses and runs the chosen command. Returns the exit code: 0, or 2 for a wrong command line (already explained on
  // standard error). An exception of the command is passed on.
  int run(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

// Writes to standard output at once; fails if it cannot be written.
void print(const std::string& text);

}  // namespace tandem::cli
