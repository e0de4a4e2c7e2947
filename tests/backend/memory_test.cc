#include "backend/backend.h"
#include "matrix.h"

namespace tandem::backend {
namespace {

using testing::Matrix;

TEST(Memory, AllocationsAreAligned) {
  const auto backend = make_cpu_backend(2);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{65}, size_t{1} << 20}) {
    const Buffer buffer = backend->allocate(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0U);
  }
}

TEST(Memory, DescriptionNamesTheDevice) {
  const std::string text = make_cpu_backend(3)->description();
  EXPECT_NE(text.find("CPU, 3 threads"), std::string::npos) << text;
  EXPECT_NE(text.find(cpu_has_native_bf16() ? "native bf16" : "no native bf16"), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem::backend
