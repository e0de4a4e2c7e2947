// PTX of a few lines to try the emulated GPU with.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulated_gpu/error.h"
#include "emulated_gpu/ptx/grid.h"
#include "emulated_gpu/ptx/tensor_map.h"

namespace emulated {

// A kernel whose blocks of `threads` threads run `body`. Its first parameter (%rd1) points to `numbers`, the second one
// is the copy engine's map of a matrix of 64 columns of 16 bits there, in boxes of 8 rows. %r1 is the thread, %r3 where
// the block's shared memory begins; %r4 and %rd3 are the thread's words in shared memory and of `numbers`.
struct Trial {
  std::string body;
  uint32_t threads = 32;
  uint32_t blocks = 1;  // of one cluster
  bool overlaps = false;
  std::vector<uint32_t> numbers = std::vector<uint32_t>(64, 7);

  std::vector<uint32_t> run() const {
    const std::string head = R"(.version 9.0
.target sm_90a
.entry trial(
.param .u64 trial_param_0,
.param .align 64 .b8 trial_param_1[128]
)
{
.reg .pred %p<4>;
.reg .b16 %rs<4>;
.reg .f32 %f<64>;
.reg .b32 %r<16>;
.reg .b64 %rd<8>;
.shared .align 1024 .b8 room[32768];
ld.param.u64 %rd1, [trial_param_0];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd2, %r1, 4;
add.s64 %rd3, %rd1, %rd2;
shl.b32 %r2, %r1, 2;
mov.u32 %r3, room;
add.s32 %r4, %r3, %r2;
)";
    const auto module = std::make_shared<const ModuleText>(head + body + "\nret;\n}\n");
    const Program program = decode(module, "trial");
    DeviceMemory& memory = DeviceMemory::instance();
    const size_t bytes = numbers.size() * sizeof(uint32_t);
    const std::unique_ptr<void, std::function<void(void*)>> place(memory.take(bytes, false),
                                                                  [&](void* p) { memory.give(p); });
    std::memcpy(place.get(), numbers.data(), bytes);
    const auto address = reinterpret_cast<uint64_t>(place.get());
    TensorMap map;
    map.data = address;
    map.cols = TensorMap::kCols;
    map.stride = TensorMap::kRowBytes;
    map.rows = static_cast<int64_t>(bytes / TensorMap::kRowBytes);
    map.box_rows = 8;
    std::vector<std::byte> arguments(program.parameter_bytes);
    std::memcpy(arguments.data() + program.parameters[0].offset, &address, sizeof address);
    std::memcpy(arguments.data() + program.parameters[1].offset, &map, sizeof map);
    run_grid({program, {blocks, 1, 1}, {threads, 1, 1}, arguments, blocks, overlaps}, 0);
    std::vector<uint32_t> results(numbers.size());
    std::memcpy(results.data(), place.get(), bytes);
    return results;
  }

  // What is said when it fails; nothing if it does not.
  std::string failure() const {
    try {
      run();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
};

inline void expect_failure(const Trial& trial, const std::string& said) {
  EXPECT_NE(trial.failure().find(said), std::string::npos) << "\"" << trial.failure() << "\" instead of " << said;
}

}  // namespace emulated
