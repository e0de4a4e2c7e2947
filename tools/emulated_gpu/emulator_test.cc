// The emulated GPU itself: that it notices what a GPU would not forgive, on PTX of a few lines.
#include "emulated_gpu/trial.h"

namespace emulated {
namespace {

TEST(Emulator, SaysWhichAccessIsWrong) {
  expect_failure({"st.global.u32 [%rd3+132], %r1;"},  // the last thread's is one behind the end
                 "out-of-bounds access to 4 bytes of global memory");
  expect_failure({"st.global.u32 [%rd3+132], %r1;"}, "in thread 31 of block (0, 0, 0), at line 21 of the PTX");
  expect_failure({"ld.global.u32 %r5, [%rd3+-4];"}, "in thread 0");
  expect_failure({"ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd3];"}, "misaligned access to 16 bytes");
  expect_failure({"st.shared.u32 [%r4+32644], %r1;"}, "out-of-bounds access to 4 bytes of shared memory");
  expect_failure({"st.shared.u32 [%r2], %r1;"}, "out-of-bounds access to 4 bytes of shared memory at 0x0");
  EXPECT_EQ((Trial{"st.global.u32 [%rd3+128], %r1;\nst.shared.u32 [%r4+32640], %r1;"}.failure()), "");
}

TEST(Emulator, RefusesWhatItDoesNotKnow) {
  expect_failure({"fma.rz.f32 %f1, %f2, %f3, %f4;"}, "does not know the instruction fma.rz.f32 at line 21 of the PTX");
  expect_failure({"add.s32 %r5, %r1, %nosuch;"}, "does not know the operand %nosuch");
  expect_failure({"add.s64 %rd4, %rd1, %r1;"}, "another size of %r1");
  expect_failure({"add.s32 %r5, %r1;"}, "another number of operands");
}

TEST(Emulator, LanesPartAndComeTogether) {
  // Lane i counts to i, the odd ones by twos; then all are together again.
  const std::vector<uint32_t> counts = Trial{R"(mov.u32 %r5, 0;
and.b32 %r6, %r1, 1;
setp.eq.s32 %p1, %r6, 0;
$loop:
setp.ge.s32 %p2, %r5, %r1;
@%p2 bra $out;
@%p1 bra $even;
add.s32 %r5, %r5, 2;
bra.uni $loop;
$even:
add.s32 %r5, %r5, 1;
bra.uni $loop;
$out:
vote.sync.ballot.b32 %r7, %p2, -1;
shfl.sync.idx.b32 %r8|%p3, %r5, 31, 31, -1;
st.global.u32 [%rd3], %r5;
st.global.u32 [%rd1+128], %r7;
st.global.u32 [%rd1+132], %r8;)"}
                                           .run();
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(counts[i], i + i % 2) << i;
  }
  EXPECT_EQ(counts[32], 0xFFFFFFFF);
  EXPECT_EQ(counts[33], 32U);
}

TEST(Emulator, LanesThatAreNamedMustComeToo) {
  expect_failure(
      {"setp.lt.s32 %p1, %r1, 16;\n@%p1 bra $some;\nret;\n$some:\nshfl.sync.bfly.b32 %r5|%p2, %r1, 1, 31, -1;"},
      "lanes 0000ffff take part, but ffffffff are named");
  expect_failure({"setp.lt.s32 %p1, %r1, 16;\n@%p1 bra $some;\nbra.uni $out;\n$some:\nbar.sync 0;\n$out:"},
                 "not all lanes of the warp come to the barrier");
  expect_failure({"setp.lt.s32 %p1, %r1, 32;\n@%p1 bra $some;\nret;\n$some:\nbar.sync 0;", 64},
                 "waits for warps that will not come");
}

// A thread reads what one of the other warp has written, with and without waiting for it.
TEST(Emulator, AMissingBarrierShows) {
  const std::string write = "st.shared.u32 [%r4], %r1;\n";
  const std::string read =
      "xor.b32 %r5, %r2, 128;\nadd.s32 %r6, %r3, %r5;\nld.shared.u32 %r7, [%r6];\nst.global.u32 [%rd3], %r7;";
  EXPECT_EQ(Trial({write + "bar.sync 0;\n" + read, 64}).run()[40], 8U);
  expect_failure({write + read, 64}, "of shared memory at 0x");
  expect_failure({write + read, 64}, "that no barrier parts from an access of warp");
  // What is read must not be written over either before all have met.
  const std::string over = "\nst.shared.u32 [%r4], %r7;";
  expect_failure({write + "bar.sync 0;\n" + read + over, 64}, "that no barrier parts from an access of warp");
  EXPECT_EQ(Trial({write + "bar.sync 0;\n" + read + "\nbar.sync 1, 64;" + over, 64}).failure(), "");
}

// Copies beside the computation are there when they were waited for, not before.
TEST(Emulator, ACopyArrivesWhenItIsAwaited) {
  const std::string copy =
      "shl.b32 %r5, %r1, 4;\nadd.s32 %r5, %r5, %r3;\nsetp.lt.s32 %p1, %r1, 8;\n"
      "mul.wide.u32 %rd4, %r1, 16;\nadd.s64 %rd4, %rd4, %rd1;\n"
      "@%p1 cp.async.cg.shared.global [%r5], [%rd4], 16;\ncp.async.commit_group;\n";
  const std::string read = "bar.sync 0;\nld.shared.u32 %r7, [%r4];\nst.global.u32 [%rd3+128], %r7;";
  const std::vector<uint32_t> awaited = Trial{copy + "cp.async.wait_group 0;\n" + read}.run(),
                              early = Trial{copy + "cp.async.wait_group 1;\n" + read}.run();
  EXPECT_EQ(awaited[40], 7U);
  EXPECT_NE(early[40], 7U);
}

// c[i][j] = a row of ones times b, and of b only row 3 is not zero: 2 in column 5.
TEST(Emulator, MatricesMultiply) {
  const std::vector<uint32_t> sums = Trial{R"(mov.u32 %r5, 1065369472;
mov.u32 %r6, 0;
setp.eq.s32 %p1, %r1, 21;
selp.b32 %r7, 1073741824, 0, %p1;
mov.f32 %f5, 0f00000000;
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r5, %r5, %r5, %r5}, {%r7, %r6}, {%f5, %f5, %f5, %f5};
st.global.f32 [%rd3], %f2;
st.global.f32 [%rd3+128], %f4;)"}
                                         .run();
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(std::bit_cast<float>(sums[i]), i % 4 == 2 ? 2.0F : 0.0F) << i;
  }
}

}  // namespace
}  // namespace emulated
