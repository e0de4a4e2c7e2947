// The check that throws the project's one exception, tandem::Error.
//
// A message is one line that states what is wrong, where (the file, the line, the two sizes) and what to do. Only main
// catches it: it prints the message and returns 1.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

#include "tandem/error.h"

namespace tandem::inline core {

// A signal asked the program to stop and everything is in order; main exits with 128 + signal.
class Interrupted : public Error {
 public:
  Interrupted(int signal, const std::string& message) : Error(message), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

// Always checked, also in release builds. The message is formatted only if the condition is false.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]] {
    fail(format, std::forward<Args>(args)...);
  }
}

}  // namespace tandem::inline core
