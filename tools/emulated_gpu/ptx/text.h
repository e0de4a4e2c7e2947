// PTX as text: the functions of a module and their statements, with names made unique and calls inlined.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace emulated {

// "@!%p1 ld.global.v2.u32 {%r1, %r2}, [%rd1+8];"
struct Statement {
  int line = 0;  // of the module's text, from 1
  std::string guard;
  bool negated = false;
  std::string opcode;
  std::vector<std::string> operands;
};

// A variable in shared, local or parameter memory.
struct Variable {
  std::string name;
  size_t bytes = 0, alignment = 1;
};

struct FunctionText {
  std::string name;
  std::vector<Variable> parameters, shared, local;
  std::map<std::string, std::string> registers;  // type ("b32", "pred") by name; parameters of calls are of type b64
  std::map<std::string, size_t> labels;          // the statement they stand before
  std::vector<Statement> statements;
  unsigned max_threads = 1024;
};

class ModuleText {
 public:
  explicit ModuleText(std::string text);

  const std::string& name_of_dynamic_memory() const { return dynamic_memory_; }  // .extern .shared
  // The kernel with this name; fails if the module has none.
  FunctionText kernel(const std::string& name) const;
  std::string line(int number) const;

 private:
  struct Place {
    size_t parameters = 0, body = 0;  // where the text in the parentheses and in the braces begins
  };

  // Adds the module's shared variables that the function names; those of others are none of its business.
  void add_shared_variables(FunctionText& function) const;

  std::string text_, dynamic_memory_;
  std::vector<Variable> shared_;  // all that are declared somewhere
  std::map<std::string, Place, std::less<>> functions_;

  friend class BodyReader;
};

}  // namespace emulated
