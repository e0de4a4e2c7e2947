// Hopper's own instructions on the emulated GPU: what they do, and that it notices where the order is missing.
#include <bit>
#include <numeric>

#include "emulated_gpu/trial.h"

namespace emulated {
namespace {

// %r5 is a barrier for one arrival, %p1 the first thread, %rd5 the map.
const std::string kBegin = R"(add.s32 %r5, %r3, 24576;
setp.eq.s32 %p1, %r1, 0;
mov.b64 %rd4, trial_param_1;
cvta.param.u64 %rd5, %rd4;
mov.u32 %r6, 0;
)";
const std::string kInit = "@%p1 mbarrier.init.shared::cta.b64 [%r5], 1;\nbar.sync 0;\n";
const std::string kWait = "$again:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0;\n@!%p2 bra $again;\n";

std::string load(int bytes) {
  return "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], " + std::to_string(bytes) +
         ";\n@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], "
         "[%rd5, {%r6, %r6}], [%r5];\n";
}

std::vector<uint32_t> counting(size_t count) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Of two rows the second one's pieces of 16 bytes have changed places in pairs; of the box's other rows there are none.
TEST(EmulatedHopper, TheCopyEngineBringsABox) {
  Trial trial{.body = kBegin + kInit + load(1024) + kWait +
                      "ld.shared.u32 %r7, [%r4+128];\nld.shared.u32 %r8, [%r4+256];\n"
                      "st.global.u32 [%rd3], %r7;\nst.global.u32 [%rd3+128], %r8;",
              .numbers = counting(64)};
  for (int order = 0; order < 2; ++order) {
    const std::vector<uint32_t> results = trial.run();
    for (uint32_t i = 0; i < 32; ++i) {
      EXPECT_EQ(results[i], 32 + (i ^ 4)) << i;
      EXPECT_EQ(results[32 + i], 0U) << i;
    }
  }
}

TEST(EmulatedHopper, ABoxIsThereWhenItsBarrierSaysSo) {
  const std::string read = "ld.shared.u32 %r7, [%r3];\nst.global.u32 [%rd3], %r7;";
  EXPECT_EQ((Trial{kBegin + kInit + load(1024) + kWait + read, 64}.failure()), "");
  expect_failure({kBegin + kInit + load(1024) + read, 64}, "that no barrier parts from an access of warp");
  expect_failure({kBegin + kInit + load(1008) + kWait + read}, "waits for warps that will not come");
  expect_failure({kBegin + load(1024)}, "there is no barrier at this address");
  expect_failure({kBegin + "@%p1 mbarrier.init.shared::cta.b64 [%r5], 1;\nmbarrier.arrive.shared::cta.b64 _, [%r5];\n" +
                  "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 1048576;"},
                 "more bytes than it can");
}

TEST(EmulatedHopper, TheCopyEngineStoresWhatIsPublished) {
  const std::string write = "st.shared.u32 [%r4], %r1;\nadd.s32 %r7, %r1, 100;\nst.shared.u32 [%r4+128], %r7;\n";
  const std::string fence = "fence.proxy.async.shared::cta;\n";
  const std::string store =
      "@%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd5, {%r6, %r6}], [%r3];\n"
      "@%p1 cp.async.bulk.commit_group;\n";
  const std::string wait = "cp.async.bulk.wait_group.read 0;";
  const std::vector<uint32_t> results = Trial{kBegin + write + fence + store + wait}.run();
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(results[i], i);
    EXPECT_EQ(results[32 + i], 100 + (i ^ 4));
  }
  expect_failure({kBegin + write + store + wait}, "without its fence.proxy.async");
  expect_failure({kBegin + write + fence + store}, "ends before the copy engine has read");
  expect_failure({kBegin + write + fence + store + "st.shared.u32 [%r4], %r6;\n" + wait},
                 "without its fence.proxy.async");
}

// Each block sends the other one its number.
TEST(EmulatedHopper, BlocksOfAClusterSendToOneAnother) {
  const std::string both = "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n";
  const std::string init =
      "mov.u32 %r6, %cluster_ctarank;\n@%p1 mbarrier.init.shared::cta.b64 [%r5], 1;\n"
      "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 16;\n";
  const std::string send = R"(xor.b32 %r7, %r6, 1;
mapa.shared::cluster.u32 %r8, %r3, %r7;
mapa.shared::cluster.u32 %r9, %r5, %r7;
cvt.rn.f32.s32 %f1, %r6;
@%p1 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%r8], {%f1, %f1, %f1, %f1}, [%r9];
)";
  const std::string show = R"(ld.shared.u32 %r10, [%r3];
shl.b32 %r11, %r6, 5;
add.s32 %r11, %r11, %r1;
mul.wide.u32 %rd4, %r11, 4;
add.s64 %rd4, %rd4, %rd1;
st.global.u32 [%rd4], %r10;
)";
  const std::vector<uint32_t> results =
      Trial{.body = kBegin + init + both + send + kWait + show + both, .blocks = 2}.run();
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(std::bit_cast<float>(results[i]), i < 32 ? 1.0F : 0.0F) << i;
  }
  expect_failure({.body = kBegin + init + send + kWait + show, .blocks = 2}, "there is no barrier at this address");
  expect_failure({.body = kBegin + init + both + send + show + both, .blocks = 2},
                 "that no barrier parts from an access");
  expect_failure(
      {.body = "mapa.shared::cluster.u32 %r8, %r3, 2;\nmbarrier.arrive.shared::cluster.b64 _, [%r8];", .blocks = 2},
      "the cluster has no block 2");
  // Nothing tells the second block that the first one has arrived at its barrier; whether it has ended by then is
  // chance.
  const std::string arrive =
      "setp.eq.s32 %p3, %r6, 0;\nmapa.shared::cluster.u32 %r9, %r5, 1;\n"
      "@%p3 mbarrier.arrive.shared::cluster.b64 _, [%r9];\n";
  const std::string many = "mov.u32 %r6, %cluster_ctarank;\n@%p1 mbarrier.init.shared::cta.b64 [%r5], 64;\n";
  for (int order = 0; order < 2; ++order) {
    EXPECT_EQ((Trial{.body = kBegin + many + both + arrive + both, .blocks = 2}.failure()), "");
    const std::string failure = Trial{.body = kBegin + many + both + arrive, .blocks = 2}.failure();
    EXPECT_TRUE(failure.find("warp 0 of block 0 does in its memory") != std::string::npos ||
                failure.find("block 1 of the cluster has ended") != std::string::npos)
        << failure;
  }
}

// a [64, 16] and b [128, 16] have numbers in one column alone, a row's index each: so the product is row * column.
TEST(EmulatedHopper, GroupsOfWarpsMultiplyTiles) {
  std::string fill = "mov.u32 %r6, 0;\nshl.b32 %r5, %r1, 4;\nadd.s32 %r5, %r5, %r3;\n";
  for (int bytes = 0; bytes < 24576; bytes += 2048) {
    fill += "st.shared.v4.u32 [%r5+" + std::to_string(bytes) + "], {%r6, %r6, %r6, %r6};\n";
  }
  fill += R"(bar.sync 0;
cvt.rn.f32.s32 %f1, %r1;
cvt.rn.bf16.f32 %rs1, %f1;
and.b32 %r6, %r1, 7;
shl.b32 %r6, %r6, 4;
shl.b32 %r5, %r1, 7;
add.s32 %r5, %r5, %r6;
add.s32 %r5, %r5, %r3;
setp.lt.s32 %p1, %r1, 64;
@%p1 st.shared.u16 [%r5+6], %rs1;
st.shared.u16 [%r5+8198], %rs1;
)";
  const std::string fence = "fence.proxy.async.shared::cta;\n";
  std::string sums, store;
  for (int i = 0; i < 64; ++i) {
    sums += (i == 0 ? "%f" : ", %f") + std::to_string(i);
    store += "st.global.f32 [%rd3+" + std::to_string(i * 512) + "], %f" + std::to_string(i) + ";\n";
  }
  const std::string multiply = R"(bar.sync 0;
cvt.u64.u32 %rd4, %r3;
shr.u64 %rd4, %rd4, 4;
or.b64 %rd4, %rd4, 0x4000004000000000;
add.s64 %rd5, %rd4, 512;
setp.lt.s32 %p2, %r1, 0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {)" +
                               sums + "}, %rd4, %rd5, %p2, 1, 1, 0, 0;\nwgmma.commit_group.sync.aligned;\n";
  const std::string wait = "wgmma.wait_group.sync.aligned 0;\n";
  Trial trial{.body = fill + fence + multiply + wait + store, .threads = 128, .numbers = std::vector<uint32_t>(8192)};
  const std::vector<uint32_t> results = trial.run();
  for (uint32_t i = 0; i < 8192; ++i) {
    const uint32_t sum = i / 128, thread = i % 128, lane = thread % 32;
    const uint32_t row = thread / 32 * 16 + lane / 4 + sum % 4 / 2 * 8, col = sum / 4 * 8 + lane % 4 * 2 + sum % 2;
    ASSERT_EQ(std::bit_cast<float>(results[i]), static_cast<float>(row * col)) << row << " " << col;
  }
  trial.body = fill + multiply + wait + store;
  expect_failure(trial, "without its fence.proxy.async");
  trial.body = fill + fence + multiply + "st.shared.u32 [%r4], %r1;\n" + wait + store;
  expect_failure(trial, "without its fence.proxy.async");
}

// A kernel that begins before the one before it has ended touches nothing before it has waited, and waits somewhere:
// the next one waits for this one alone.
TEST(EmulatedHopper, AnOverlappingKernelWaits) {
  EXPECT_EQ((Trial{.body = "griddepcontrol.wait;\nst.global.u32 [%rd3], %r1;", .overlaps = true}.failure()), "");
  expect_failure({.body = "st.global.u32 [%rd3], %r1;", .overlaps = true}, "before griddepcontrol.wait");
  expect_failure({.body = "griddepcontrol.launch_dependents;", .overlaps = true}, "never waits for the one before");
}

}  // namespace
}  // namespace emulated
