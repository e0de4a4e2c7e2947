// A GPU that fails in the middle of the work: an illegal address stands for it, after which the driver refuses
// everything, as it does when the device has fallen off the bus.
#include "core/error.h"
#include "cuda/device.h"

namespace tandem {
namespace {

class CudaLost : public testing::CudaTest {};

// Exits with 1 and the sentence, after everything that was taken is given back.
[[noreturn]] void lose_the_gpu() {
  std::string message;
  {
    const auto backend = make_backend("cuda", 1);
    const Buffer memory = backend->allocate(1 << 20);
    const View nowhere = make_view(reinterpret_cast<void*>(1 << 20), DType::f32, 256, 256, Memory::device);
    const auto recording = backend->record([&] { backend->copy(memory.view(DType::bf16, 256, 256), nowhere); });
    recording->run();
    const auto fails = [&](const auto& work) {
      try {
        work();
      } catch (const Error& error) {
        message += std::string(error.what()) + "\n";
      }
    };
    fails([&] { backend->wait(); });
    fails([&] { backend->fill_zero(memory.view(DType::f32, 1, 1024)); });
    fails([&] { backend->allocate(1 << 20); });
  }
  std::fputs(message.c_str(), stderr);
  std::exit(1);
}

TEST_F(CudaLost, EveryFurtherCallIsOneSentence) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in a process of its own: this one's GPU stays
  EXPECT_EXIT(lose_the_gpu(), ::testing::ExitedWithCode(1),
              "^the GPU failed at .*\nthe GPU failed at .*\n.*(GPU|memory).*\n$");
}

}  // namespace
}  // namespace tandem
