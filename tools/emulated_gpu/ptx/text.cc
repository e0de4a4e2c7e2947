#include "emulated_gpu/ptx/text.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "emulated_gpu/error.h"

namespace emulated {

namespace {

constexpr std::string_view kSpaces = " \t\r\n";

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%'; }

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// Cut at commas that are in no brackets.
std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    depth += c == '{' || c == '[' || c == '(' ? 1 : c == '}' || c == ']' || c == ')' ? -1 : 0;
    if (c == ',' && depth == 0) {
      if (const std::string_view part = trimmed(text.substr(begin, i - begin)); !part.empty()) {
        parts.emplace_back(part);
      }
      begin = i + 1;
    }
  }
  return parts;
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> found;
  while (!(text = trimmed(text)).empty()) {
    const size_t end = std::min(text.find_first_of(kSpaces), text.size());
    found.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return found;
}

size_t bytes_of(std::string_view type) {
  return type == ".pred" ? 1 : std::stoul(std::string(type.substr(2))) / 8;  // ".b32"
}

// ".shared .align 16 .b8 name[64]"
Variable variable_of(std::string_view text) {
  Variable variable;
  const std::vector<std::string> parts = words(text);
  for (size_t i = 1; i + 1 < parts.size(); ++i) {
    if (parts[i] == ".align") {
      variable.alignment = std::stoul(parts[++i]);
    } else {
      variable.bytes = bytes_of(parts[i]);
      variable.alignment = std::max(variable.alignment, variable.bytes);
    }
  }
  variable.name = parts.back();
  if (const size_t bracket = variable.name.find('['); bracket != std::string::npos) {
    const std::string count = variable.name.substr(bracket + 1, variable.name.size() - bracket - 2);
    variable.bytes *= count.empty() ? 0 : std::stoul(count);
    variable.name.resize(bracket);
  }
  return variable;
}

}  // namespace

// Reads the body of a function, and of those it calls, into one list of statements.
class BodyReader {
 public:
  BodyReader(const ModuleText& module, FunctionText& function) : module_(module), function_(function) {}

  // From behind the opening brace.
  void read(size_t position) { read(position, {}); }

  static std::vector<Variable> parameters_at(const ModuleText& module, size_t position) {
    std::vector<Variable> parameters;
    const std::string_view text = module.text_;
    for (const std::string& part : split(text.substr(position, text.find(')', position) - position))) {
      parameters.push_back(variable_of(part));
    }
    return parameters;
  }

 private:
  struct Scope {
    std::string suffix;  // of the names that are declared in it, so that they differ from all others
    std::set<std::string, std::less<>> names;
  };

  void read(size_t position, const Scope& outermost) {
    position_ = position;
    suffix_ = outermost.suffix;
    scopes_.assign(1, outermost);
    const std::string_view text = module_.text_;
    while (!scopes_.empty()) {
      position_ = text.find_first_not_of(kSpaces, position_);
      if (text[position_] == '{') {
        scopes_.push_back({fmt::format("{}#{}", suffix_, position_), {}});
        ++position_;
      } else if (text[position_] == '}') {
        scopes_.pop_back();
        ++position_;
      } else if (!read_label()) {
        const size_t end = text.find(';', position_);
        const std::string_view statement = text.substr(position_, end - position_);
        const int line = line_of(position_);
        position_ = end + 1;
        statement[0] == '.' ? read_declaration(statement, line) : read_statement(statement, line);
      }
    }
  }

  int line_of(size_t position) {
    line_ += static_cast<int>(std::count(module_.text_.begin() + static_cast<ptrdiff_t>(counted_),
                                         module_.text_.begin() + static_cast<ptrdiff_t>(position), '\n'));
    counted_ = position;
    return line_;
  }

  bool read_label() {
    const std::string_view text = module_.text_;
    size_t end = position_;
    while (is_name(text[end])) {
      ++end;
    }
    if (end == position_ || text[end] != ':') {
      return false;
    }
    function_.labels[std::string(text.substr(position_, end - position_)) + suffix_] = function_.statements.size();
    position_ = end + 1;
    return true;
  }

  void declare(const std::string& name, std::string_view type) {
    scopes_.back().names.insert(name);
    function_.registers[name + scopes_.back().suffix] = type;
  }

  void read_declaration(std::string_view text, int line) {
    const std::string kind(text.substr(0, text.find_first_of(kSpaces)));
    if (kind == ".pragma") {
      return;
    }
    if (kind == ".shared") {
      function_.shared.push_back(variable_of(text));
    } else if (kind == ".local") {
      function_.local.push_back(variable_of(text));
    } else if (kind == ".param") {
      declare(variable_of(text).name, "b64");
    } else if (kind == ".reg") {
      text = trimmed(text.substr(kind.size()));
      const size_t space = text.find_first_of(kSpaces);
      const std::string_view type = text.substr(1, space - 1);
      for (const std::string& name : split(text.substr(space))) {
        const size_t bracket = name.find('<');
        const int count = bracket == std::string::npos ? 0 : std::stoi(name.substr(bracket + 1));
        for (int i = 0; i < count; ++i) {
          declare(fmt::format("{}{}", name.substr(0, bracket), i), type);
        }
        if (bracket == std::string::npos) {
          declare(name, type);
        }
      }
    } else {
      fail("line {} of the PTX declares what the emulated GPU does not know: {}", line, text);
    }
  }

  // The text with the unique names of what it names.
  std::string renamed(std::string_view text) const {
    std::string result;
    for (size_t i = 0; i < text.size();) {
      size_t end = i;
      while (end < text.size() && is_name(text[end])) {
        ++end;
      }
      const std::string_view name = text.substr(i, end - i);
      result += name;
      const auto scope = std::find_if(scopes_.rbegin(), scopes_.rend(),
                                      [&](const Scope& s) { return !name.empty() && s.names.contains(name); });
      if (scope != scopes_.rend()) {
        result += scope->suffix;
      }
      if (end == i) {
        result += text[end++];
      }
      i = end;
    }
    return result;
  }

  void read_statement(std::string_view text, int line) {
    Statement statement;
    statement.line = line;
    if (text[0] == '@') {
      statement.negated = text[1] == '!';
      text.remove_prefix(statement.negated ? 2 : 1);
      const size_t space = text.find_first_of(kSpaces);
      statement.guard = renamed(text.substr(0, space));
      text = trimmed(text.substr(space));
    }
    const size_t space = std::min(text.find_first_of(kSpaces), text.size());
    statement.opcode = text.substr(0, space);
    for (const std::string& operand : split(text.substr(space))) {
      statement.operands.push_back(renamed(operand));
    }
    if (statement.opcode == "bra" || statement.opcode == "bra.uni") {
      statement.operands.at(0) += suffix_;
    }
    if (statement.opcode == "ret" && !suffix_.empty()) {
      statement.opcode = "bra.uni";
      statement.operands = {"end" + suffix_};
    }
    if (statement.opcode == "call.uni") {
      inline_call(statement);
    } else {
      function_.statements.push_back(std::move(statement));
    }
  }

  // "call.uni (result), name, (a, b)": the callee's parameters are registers, and its result is func_retval0.
  void inline_call(const Statement& call) {
    require(call.operands.size() == 3 && call.guard.empty(), "line {} of the PTX has a call of another form",
            call.line);
    const auto callee = module_.functions_.find(call.operands[1]);
    require(callee != module_.functions_.end(), "line {} of the PTX calls {}, which is not there", call.line,
            call.operands[1]);
    const auto inside = [](const std::string& list) { return split(list.substr(1, list.size() - 2)); };
    const std::string suffix = fmt::format("@{}", function_.statements.size());
    const std::vector<Variable> parameters = parameters_at(module_, callee->second.parameters);
    const auto move = [&](const std::string& to, const std::string& from) {
      function_.statements.push_back({call.line, "", false, "mov.b64", {to, from}});
    };
    const std::vector<std::string> arguments = inside(call.operands[2]);
    for (size_t i = 0; i < parameters.size(); ++i) {
      move(parameters[i].name + suffix, arguments.at(i));
    }
    Scope scope{suffix, {"func_retval0"}};
    for (const Variable& parameter : parameters) {
      scope.names.insert(parameter.name);
    }
    for (const std::string& name : scope.names) {
      function_.registers[name + suffix] = "b64";
    }
    BodyReader(module_, function_).read(callee->second.body, scope);
    function_.labels["end" + suffix] = function_.statements.size();
    move(inside(call.operands[0]).at(0), "func_retval0" + suffix);
  }

  const ModuleText& module_;
  FunctionText& function_;
  std::string suffix_;
  std::vector<Scope> scopes_;
  size_t position_ = 0, counted_ = 0;
  int line_ = 1;
};

ModuleText::ModuleText(std::string text) : text_(std::move(text)) {
  std::erase(text_, '\0');
  for (size_t at = 0; (at = text_.find("//", at)) != std::string::npos;) {
    text_.erase(at, text_.find('\n', at) - at);
  }
  const std::string_view whole = text_;
  if (const size_t at = whole.find(".extern .shared"); at != std::string_view::npos) {
    const size_t name = at + std::string_view(".extern ").size();
    dynamic_memory_ = variable_of(whole.substr(name, whole.find(';', name) - name)).name;
  }
  for (size_t at = 0; (at = whole.find("\n.shared ", at)) != std::string_view::npos;) {
    const size_t begin = at + 1;
    at = whole.find(';', begin);
    shared_.push_back(variable_of(whole.substr(begin, at - begin)));
  }
  for (const std::string_view word : {".entry", ".func"}) {
    for (size_t at = 0; (at = whole.find(word, at)) != std::string_view::npos;) {
      at += word.size();
      size_t list = whole.find('(', at);
      if (trimmed(whole.substr(at, list - at)).empty()) {  // the result, before the name
        at = whole.find(')', list) + 1;
        list = whole.find('(', at);
      }
      const std::string name(trimmed(whole.substr(at, list - at)));
      const size_t body = whole.find_first_of("{;", list);
      if (whole[body] == '{') {  // not a mere declaration
        functions_[name] = {list + 1, body + 1};
      }
    }
  }
}

FunctionText ModuleText::kernel(const std::string& name) const {
  const auto found = functions_.find(name);
  require(found != functions_.end(), "the PTX has no kernel {}", name);
  FunctionText function;
  function.name = name;
  function.parameters = BodyReader::parameters_at(*this, found->second.parameters);
  const std::string_view head =
      std::string_view(text_).substr(found->second.parameters, found->second.body - found->second.parameters);
  if (const size_t limit = head.find(".maxntid"); limit != std::string_view::npos) {
    function.max_threads = static_cast<unsigned>(std::stoul(std::string(head.substr(limit + 9, 5))));
  }
  BodyReader(*this, function).read(found->second.body);
  add_shared_variables(function);
  return function;
}

void ModuleText::add_shared_variables(FunctionText& function) const {
  for (const Variable& variable : shared_) {
    const auto is_it = [&](const Variable& own) { return own.name == variable.name; };
    const auto names_it = [&](const Statement& statement) {
      return std::ranges::any_of(statement.operands, [&](const std::string& operand) {
        return operand.find(variable.name) != std::string::npos;
      });
    };
    if (std::ranges::none_of(function.shared, is_it) && std::ranges::any_of(function.statements, names_it)) {
      function.shared.push_back(variable);
    }
  }
}

std::string ModuleText::line(int number) const {
  size_t at = 0;
  for (int i = 1; i < number; ++i) {
    at = text_.find('\n', at) + 1;
  }
  return text_.substr(at, text_.find('\n', at) - at);
}

}  // namespace emulated
