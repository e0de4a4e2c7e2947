#include <fmt/format.h>

#include "backend/cpu/cpu_backend.h"

namespace tandem::backend {

namespace {

const char* vector_extension() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") ? "AVX-512" : "AVX2";
#else
  return "baseline vectors";
#endif
}

}  // namespace

bool cpu_has_native_bf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");  // every CPU with AMX has it too
#else
  return false;
#endif
}

std::string CpuBackend::description() const {
  return fmt::format("CPU, {} {}, {}, {} bf16", threads_.count(), threads_.count() == 1 ? "thread" : "threads",
                     vector_extension(), cpu_has_native_bf16() ? "native" : "no native");
}

}  // namespace tandem::backend
