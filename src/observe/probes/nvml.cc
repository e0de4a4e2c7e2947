#include "observe/probes/nvml.h"

#include <dlfcn.h>

#include <charconv>

namespace tandem::observe {

namespace {

template <class Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::unique_ptr<Nvml> Nvml::open(const std::string& library) {
  std::unique_ptr<Nvml> nvml(new Nvml);
  return nvml->load(library) ? std::move(nvml) : nullptr;
}

bool Nvml::load(const std::string& library) {
  library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    return false;
  }
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  if (!find(library_, "nvmlInit_v2", init) || !find(library_, "nvmlShutdown", shutdown) || init() != 0) {
    return false;
  }
  shutdown_ = shutdown;
  find(library_, "nvmlDeviceGetHandleByPciBusId_v2", by_bus_id_);
  find(library_, "nvmlDeviceGetHandleByUUID", by_uuid_);
  find(library_, "nvmlDeviceGetHandleByIndex_v2", by_index_);
  find(library_, "nvmlDeviceGetName", name);
  find(library_, "nvmlDeviceGetUUID", uuid);
  find(library_, "nvmlDeviceGetPowerUsage", power);
  find(library_, "nvmlDeviceGetEnforcedPowerLimit", power_limit);
  find(library_, "nvmlDeviceGetTotalEnergyConsumption", energy);
  find(library_, "nvmlDeviceGetClockInfo", clock);
  find(library_, "nvmlDeviceGetTemperature", temperature);
  find(library_, "nvmlDeviceGetMemoryInfo", memory);
  find(library_, "nvmlDeviceGetUtilizationRates", utilisation);
  find(library_, "nvmlDeviceGetCurrentClocksThrottleReasons", throttle);
  find(library_, "nvmlDeviceGetPerformanceState", performance_state);
  return true;
}

Nvml::~Nvml() {
  if (shutdown_ != nullptr) {
    shutdown_();
  }
  if (library_ != nullptr) {
    dlclose(library_);
  }
}

NvmlDevice Nvml::device(const std::string& gpu) const {
  NvmlDevice device = nullptr;
  uint32_t index = 0;
  const auto [end, error] = std::from_chars(gpu.data(), gpu.data() + gpu.size(), index);
  int result = -1;
  if (error == std::errc() && end == gpu.data() + gpu.size()) {
    result = by_index_ != nullptr ? by_index_(index, &device) : -1;
  } else if (gpu.starts_with("GPU-") || gpu.starts_with("MIG-")) {
    result = by_uuid_ != nullptr ? by_uuid_(gpu.c_str(), &device) : -1;
  } else {
    result = by_bus_id_ != nullptr ? by_bus_id_(gpu.c_str(), &device) : -1;
  }
  return result == 0 ? device : nullptr;
}

}  // namespace tandem::observe
