// A kernel as the emulated GPU runs it: instructions whose operands are places in a warp's file of registers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulated_gpu/ptx/text.h"

namespace emulated {

constexpr int kLanes = 32;  // of a warp
constexpr uint32_t kAllLanes = 0xFFFFFFFF;
constexpr uint32_t kNone = 0xFFFFFFFF;
// Where a block's shared memory begins: what lies before it is the driver's own, as on GPUs of 8.0 and 9.0.
constexpr uint32_t kDriversSharedMemory = 1024;

class Warp;
struct Instruction;
using Handler = void (*)(Warp&, const Instruction&, uint32_t lanes);

enum class Step : uint8_t { plain, branch, exit, barrier, cluster_barrier };

// A register is 32 numbers of 4 bytes (b16, b32, f32) or of 8 (b64, f64), or a predicate of one bit a lane.
struct Instruction {
  static constexpr size_t kOperands = 14;

  Handler run = nullptr;
  Step step = Step::plain;
  bool negated = false;
  uint8_t elements = 1;                   // of the vector that is loaded or stored
  uint8_t operands = 0;                   // how many there are
  uint16_t wide = 0;                      // bit i: operand i has 8 bytes a lane
  uint32_t guard = kNone;                 // predicate without whose bit a lane does not take part
  int line = 0;                           // of the PTX
  uint32_t target = 0;                    // of a branch
  uint32_t join = 0;                      // where the lanes that a branch has parted come together
  std::array<uint32_t, kOperands> at{};   // bytes into the file of registers, or the value of a number that must be
                                          // known beforehand, or where a list of registers begins
  std::array<int64_t, 3> displacement{};  // of the addresses, in their order
};

struct Parameter {
  size_t offset = 0, bytes = 0;
};

// Special registers, in this order at the beginning of the file.
enum class Special : uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  cluster_ctarank,
  count
};

struct Program {
  std::string name;
  std::shared_ptr<const ModuleText> module;  // for messages
  std::vector<Instruction> code;             // the last one is an exit
  std::vector<uint32_t> lists;               // of registers, where an instruction has more than it has room for
  std::vector<Parameter> parameters;
  size_t parameter_bytes = 0;
  size_t static_shared = 0;     // bytes, without the driver's own
  uint32_t dynamic_shared = 0;  // where the dynamic part begins
  size_t local_bytes = 0;       // of a lane
  unsigned max_threads = 0;
  std::vector<std::byte> registers;  // how a warp's file begins: constants are in place, all else is poisoned
};

Program decode(std::shared_ptr<const ModuleText> module, const std::string& kernel);

// Gives every branch its join, the nearest instruction that all ways from it go through; code.size() if they part for
// good.
void find_joins(std::vector<Instruction>& code);

}  // namespace emulated
