// From statements to instructions: every name becomes a place in the file of registers, every number a constant in it.
#include <algorithm>
#include <bit>
#include <cstring>

#include "emulated_gpu/error.h"
#include "emulated_gpu/ptx/operations.h"

namespace emulated {

namespace {

const Operations& operations() {
  static const Operations all = [] {
    Operations made;
    add_integer_operations(made);
    add_float_operations(made);
    add_conversions(made);
    add_memory_operations(made);
    add_warp_operations(made);
    add_barrier_operations(made);
    add_copy_engine_operations(made);
    add_group_products(made);
    return made;
  }();
  return all;
}

size_t aligned(size_t offset, size_t alignment) { return (offset + alignment - 1) / alignment * alignment; }

constexpr const char* kSpecialNames[] = {"%tid.x",    "%tid.y",    "%tid.z",   "%ntid.x",         "%ntid.y",
                                         "%ntid.z",   "%ctaid.x",  "%ctaid.y", "%ctaid.z",        "%nctaid.x",
                                         "%nctaid.y", "%nctaid.z", "%laneid",  "%cluster_ctarank"};
static_assert(std::size(kSpecialNames) == static_cast<size_t>(Special::count));

class Decoder {
 public:
  Decoder(std::shared_ptr<const ModuleText> module, const std::string& kernel)
      : module_(std::move(module)), text_(module_->kernel(kernel)) {
    program_.name = kernel;
    program_.max_threads = text_.max_threads;
  }

  Program decode() {
    place_variables();
    place_registers();
    for (const Statement& statement : text_.statements) {
      add(statement);
    }
    Instruction end;
    end.step = Step::exit;
    program_.code.push_back(end);
    find_joins(program_.code);
    program_.module = std::move(module_);
    return std::move(program_);
  }

 private:
  struct Register {
    uint32_t at = 0;
    char kind = 'w';  // w, l or p, as in operations.h
  };

  void place_variables() {
    for (const Variable& variable : text_.parameters) {
      program_.parameter_bytes = aligned(program_.parameter_bytes, variable.alignment);
      symbols_[variable.name] = program_.parameter_bytes;
      program_.parameters.push_back({program_.parameter_bytes, variable.bytes});
      program_.parameter_bytes += variable.bytes;
    }
    size_t shared = kDriversSharedMemory;
    for (const Variable& variable : text_.shared) {
      shared = aligned(shared, variable.alignment);
      symbols_[variable.name] = shared;
      shared += variable.bytes;
    }
    program_.static_shared = shared - kDriversSharedMemory;
    program_.dynamic_shared = static_cast<uint32_t>(aligned(shared, 16));
    symbols_[module_->name_of_dynamic_memory()] = program_.dynamic_shared;
    for (const Variable& variable : text_.local) {
      program_.local_bytes = aligned(program_.local_bytes, variable.alignment);
      symbols_[variable.name] = program_.local_bytes;
      program_.local_bytes += variable.bytes;
    }
    program_.local_bytes = aligned(program_.local_bytes, 16);
  }

  Register take(char kind) {
    const auto at = static_cast<uint32_t>(program_.registers.size());
    const size_t bytes = kind == 'p' ? 64 : kLanes * (kind == 'l' ? 8 : 4);  // whole cache lines
    program_.registers.resize(at + bytes, std::byte{0xFF});
    return {at, kind};
  }

  void place_registers() {
    for (const char* name : kSpecialNames) {
      registers_[name] = take('w');
    }
    for (const auto& [name, type] : text_.registers) {
      registers_[name] = take(type == "pred" ? 'p' : type.ends_with("64") ? 'l' : 'w');
    }
  }

  Register constant(uint64_t value, char kind) {
    const auto [found, is_new] = constants_.try_emplace({value, kind});
    if (is_new) {
      found->second = take(kind);
      std::byte* const at = program_.registers.data() + found->second.at;
      for (size_t lane = 0; kind == 'l' && lane < kLanes; ++lane) {
        std::memcpy(at + lane * 8, &value, 8);
      }
      for (size_t lane = 0; kind == 'w' && lane < kLanes; ++lane) {
        std::memcpy(at + lane * 4, &value, 4);
      }
      if (kind == 'p') {
        const uint32_t bits = value == 0 ? 0 : kAllLanes;
        std::memcpy(at, &bits, sizeof bits);
      }
    }
    return found->second;
  }

  // ---- operands

  [[noreturn]] void fail_at(const Statement& statement, const std::string& what) const {
    fail("{} at line {} of the PTX, \"{}\", of kernel {}", what, statement.line, module_->line(statement.line),
         program_.name);
  }

  uint64_t number_of(const Statement& statement, const std::string& text) const {
    if (const auto symbol = symbols_.find(text); symbol != symbols_.end()) {
      return symbol->second;
    }
    try {
      if (text.starts_with("0f") || text.starts_with("0d")) {
        return std::stoull(text.substr(2), nullptr, 16);
      }
      return text[0] == '-' ? static_cast<uint64_t>(std::stoll(text, nullptr, 0)) : std::stoull(text, nullptr, 0);
    } catch (const std::logic_error&) {
      fail_at(statement, "the emulated GPU does not know the operand " + text);
    }
  }

  void add_operand(Instruction& instruction, const Statement& statement, const std::string& text, char kind) {
    if (instruction.operands == Instruction::kOperands) {
      fail_at(statement, "more operands than the emulated GPU knows");
    }
    const size_t index = instruction.operands++;
    const auto found = registers_.find(text);
    if (kind == 'n') {
      instruction.at[index] = static_cast<uint32_t>(number_of(statement, text));
      return;
    }
    Register place;
    if (found != registers_.end()) {
      place = found->second;
      if (kind == 'r' ? place.kind == 'p' : place.kind != kind) {
        fail_at(statement, "the emulated GPU expects another size of " + text);
      }
    } else {
      place = constant(number_of(statement, text), kind == 'r' ? 'l' : kind);
    }
    instruction.at[index] = place.at;
    instruction.wide |= static_cast<uint16_t>((place.kind == 'l' ? 1 : 0) << index);
  }

  // "[name+8]", "[%rd1+-16]", "[name]"
  void add_address(Instruction& instruction, const Statement& statement, const std::string& text, size_t& addresses) {
    if (text.front() != '[' || addresses == instruction.displacement.size()) {
      fail_at(statement, "the emulated GPU expects an address instead of " + text);
    }
    const size_t plus = text.find('+');
    const std::string base = text.substr(1, std::min(plus, text.size() - 1) - 1);
    uint64_t displacement =
        plus == std::string::npos ? 0 : number_of(statement, text.substr(plus + 1, text.size() - plus - 2));
    if (const auto symbol = symbols_.find(base); symbol != symbols_.end()) {
      displacement += symbol->second;
      add_operand(instruction, statement, "0", 'l');
    } else {
      add_operand(instruction, statement, base, 'r');
    }
    instruction.displacement[addresses++] = static_cast<int64_t>(displacement);
  }

  // Vectors and pairs taken apart.
  static std::vector<std::string> flattened(const std::vector<std::string>& operands) {
    std::vector<std::string> parts;
    for (const std::string& operand : operands) {
      const bool vector = operand.front() == '{';
      std::string part;
      for (const char c : vector ? operand.substr(1, operand.size() - 2) : operand) {
        if (c == ',' || c == '|') {
          parts.push_back(std::exchange(part, {}));
        } else if (c != ' ' && c != '\n') {
          part += c;
        }
      }
      parts.push_back(part);
    }
    return parts;
  }

  // "[map, {col, row}]" to "[map]", "col", "row".
  static void take_coordinates_apart(std::vector<std::string>& operands) {
    const auto found = std::ranges::find_if(operands, [](const std::string& o) { return o.find('{') < o.size(); });
    if (found != operands.end()) {
      std::vector<std::string> parts = flattened({*found});
      for (std::string& part : parts) {
        std::erase_if(part, [](char c) { return c == '{' || c == '}' || c == '[' || c == ']'; });
      }
      parts[0] = "[" + parts[0] + "]";
      operands.insert(operands.erase(found), parts.begin(), parts.end());
    }
  }

  // Instructions whose form is in their operands, not in their name, and results that go nowhere ("_").
  Statement named(const Statement& statement) const {
    Statement result = statement;
    const auto is_vector = [&](size_t i) { return i < result.operands.size() && result.operands[i].front() == '{'; };
    if (result.opcode == "mov.b32" || result.opcode == "mov.b64") {
      result.opcode += is_vector(0) ? ".unpack" : is_vector(1) ? ".pack" : "";
    } else if (result.opcode == "mov.u64" && result.operands.at(1) == "%globaltimer") {
      result.opcode = "mov.u64.globaltimer";
      result.operands.pop_back();
    } else if (result.opcode.find(".tensor.") != std::string::npos) {
      take_coordinates_apart(result.operands);
    } else if (result.opcode.starts_with("mbarrier.arrive") && result.operands.at(0) == "_") {
      result.operands.erase(result.operands.begin());
    } else if (result.opcode == "elect.sync" && result.operands.at(0).starts_with("_|")) {
      result.operands[0].erase(0, 2);
    } else if (result.opcode.starts_with("ld.param") || result.opcode.starts_with("st.param")) {
      // What a call is given and gives is in registers: "[name+0]".
      std::string& address = result.operands.at(result.opcode[0] == 'l' ? 1 : 0);
      const std::string name = address.substr(1, address.find_first_of("+]") - 1);
      const auto found = text_.registers.find(name);
      if (found != text_.registers.end() && name.front() != '%') {
        result.opcode = "mov.b64";
        address = name;
      }
    }
    return result;
  }

  void add(const Statement& original) {
    const Statement statement = named(original);
    const auto found = operations().find(statement.opcode);
    if (found == operations().end()) {
      fail_at(statement, "the emulated GPU does not know the instruction " + statement.opcode);
    }
    const Operation& operation = found->second;
    Instruction instruction;
    instruction.run = operation.run;
    instruction.step = operation.step;
    instruction.line = statement.line;
    instruction.negated = statement.negated;
    instruction.elements = statement.opcode.find(".v4.") != std::string::npos   ? 4
                           : statement.opcode.find(".v2.") != std::string::npos ? 2
                                                                                : 1;
    if (!statement.guard.empty()) {
      instruction.guard = registers_.at(statement.guard).at;
    }
    if (operation.step == Step::branch) {
      instruction.target = static_cast<uint32_t>(text_.labels.at(statement.operands.at(0)));
    } else {
      add_operands(instruction, statement, operation.operands);
    }
    program_.code.push_back(instruction);
  }

  // The first `count` operands, registers of 4 bytes a lane.
  void add_list(Instruction& instruction, const Statement& statement, const std::vector<std::string>& operands,
                size_t count) {
    instruction.at[instruction.operands++] = static_cast<uint32_t>(program_.lists.size());
    for (size_t i = 0; i < count; ++i) {
      const auto found = registers_.find(operands[i]);
      if (found == registers_.end() || found->second.kind != 'w') {
        fail_at(statement, "the emulated GPU expects a register instead of " + operands[i]);
      }
      program_.lists.push_back(found->second.at);
    }
  }

  void add_operands(Instruction& instruction, const Statement& statement, std::string kinds) {
    std::vector<std::string> operands = flattened(statement.operands);
    if (kinds.starts_with('v')) {
      const auto count = static_cast<size_t>(std::ranges::count(statement.operands.at(0), ',')) + 1;
      add_list(instruction, statement, operands, count);
      kinds.erase(0, 1);
      operands.erase(operands.begin(), operands.begin() + static_cast<ptrdiff_t>(count));
    }
    const size_t needed = std::min(kinds.find('|'), kinds.size());
    std::erase(kinds, '|');
    if (operands.size() < needed || operands.size() > kinds.size()) {
      fail_at(statement, "another number of operands than the emulated GPU knows");
    }
    size_t addresses = 0;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (kinds[i] == 'm') {
        add_address(instruction, statement, operands[i], addresses);
      } else {
        add_operand(instruction, statement, operands[i], kinds[i]);
      }
    }
  }

  std::shared_ptr<const ModuleText> module_;
  FunctionText text_;
  Program program_;
  std::map<std::string, size_t> symbols_;
  std::unordered_map<std::string, Register> registers_;
  std::map<std::pair<uint64_t, char>, Register> constants_;
};

}  // namespace

Program decode(std::shared_ptr<const ModuleText> module, const std::string& kernel) {
  return Decoder(std::move(module), kernel).decode();
}

}  // namespace emulated
