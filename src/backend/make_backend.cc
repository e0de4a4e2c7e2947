#include <charconv>
#include <filesystem>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda_device.h"
#include "core/log.h"

namespace tandem::backend {

namespace {

// The N of "cuda:N"; for "auto" and "cuda" the first that can be used, else 0, of which the reason is told.
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

}  // namespace tandem::backend
