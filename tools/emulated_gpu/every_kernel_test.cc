// Also the kernels that no test runs hold only what the emulated GPU knows.
#include <gtest/gtest.h>

#include "emulated_gpu/runtime/kernels.h"

TEST(Emulator, KnowsEveryInstructionOfTheProgram) {
  EXPECT_GT(emulated::decode_all_kernels(), size_t{EMULATED_GPU_KERNELS});
}
