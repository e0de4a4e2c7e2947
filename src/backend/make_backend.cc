// Turns the device and the precision that a user asks for into a backend and a compute type.
#include <charconv>
#include <filesystem>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda_device.h"
#include "backend/precision.h"
#include "core/log.h"

namespace tandem::backend {

namespace {

// The N of "cuda:N"; for "auto" and "cuda" the first usable GPU, else 0, so that its error is reported.
int device_number(const std::string& device) {
  constexpr std::string_view kName = "cuda";
  if (device == kName || device == "auto") {
    const std::vector<int> usable = usable_gpus();
    return usable.empty() ? 0 : usable.front();
  }
  int number = -1;
  const char* begin = device.data() + kName.size() + 1;
  const char* end = device.data() + device.size();
  const bool named = device.starts_with("cuda:") && std::from_chars(begin, end, number).ptr == end && begin < end;
  require(named && number >= 0, "device = \"{}\" is not a device: use auto, cpu, cuda or cuda:N", device);
  return number;
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads) { return std::make_unique<CpuBackend>(threads); }

std::unique_ptr<Backend> make_backend(const std::string& device, int threads) {
  const std::string problem = device == "auto" ? why_no_cuda() : "";
  if (!problem.empty() && std::filesystem::exists("/proc/driver/nvidia/version")) {
    log::warning("NVIDIA driver found, but running on the CPU: {}", problem);
  }
  if (device == "cpu" || !problem.empty()) {
    return make_cpu_backend(threads);
  }
  return make_cuda_backend(device_number(device));
}

DType compute_type(Precision precision, const Backend& backend) {
  const bool native = backend.traits().computes(DType::bf16);
  require(precision != Precision::bf16 || native,
          "precision = \"bf16\" needs a processor with AVX512_BF16 or AMX, which this one is not; use \"f32\" or "
          "\"auto\"");
  require(precision != Precision::f32 || backend.traits().computes(DType::f32),
          "a GPU computes in bf16 with f32 masters: use precision = \"bf16\" or \"auto\", or device = \"cpu\"");
  if (precision == Precision::automatic) {
    log::info("precision: {}", native ? "bf16, which the hardware computes natively"
                                      : "f32, because this processor has neither AVX512_BF16 nor AMX");
    return native ? DType::bf16 : DType::f32;
  }
  return precision == Precision::bf16 ? DType::bf16 : DType::f32;
}

}  // namespace tandem::backend
