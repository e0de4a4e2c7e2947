#include <dlfcn.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <memory>

#include "observe/probes/host_probes.h"

namespace tandem::observe {

namespace {

// A function of NVIDIA's management library, found at run time. A call returns whether it is there and succeeded.
template <class... Args>
class Function {
 public:
  Function(void* library, const char* name)
      : call_(library != nullptr ? reinterpret_cast<int (*)(Args...)>(dlsym(library, name)) : nullptr) {}
  bool is_there() const { return call_ != nullptr; }
  bool operator()(Args... arguments) const { return call_ != nullptr && call_(arguments...) == 0; }

 private:
  int (*call_)(Args...);
};

// Types of nvml.h, whose binary interface is fixed.
struct NvmlMemory {
  uint64_t total, free, used;  // bytes
};
struct NvmlUtilisation {
  uint32_t gpu, memory;  // percent
};
using NvmlDevice = void*;

class Nvml {
  void* library_;
  Function<> init_{library_, "nvmlInit_v2"}, shutdown_{library_, "nvmlShutdown"};
  Function<const char*, NvmlDevice*> by_bus_id_{library_, "nvmlDeviceGetHandleByPciBusId_v2"};
  Function<const char*, NvmlDevice*> by_uuid_{library_, "nvmlDeviceGetHandleByUUID"};
  Function<uint32_t, NvmlDevice*> by_index_{library_, "nvmlDeviceGetHandleByIndex_v2"};
  bool started_ = shutdown_.is_there() && init_();  // false without a driver

 public:
  explicit Nvml(const std::string& library) : library_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  ~Nvml() {
    if (started_) {
      shutdown_();
    }
    if (library_ != nullptr) {
      dlclose(library_);
    }
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // `gpu`: PCI bus id, UUID or number. Null if NVML or that GPU is missing.
  NvmlDevice device(const std::string& gpu) const {
    NvmlDevice device = nullptr;
    uint32_t index = 0;
    const auto [end, error] = std::from_chars(gpu.data(), gpu.data() + gpu.size(), index);
    const bool is_index = error == std::errc() && end == gpu.data() + gpu.size();
    const bool is_uuid = gpu.starts_with("GPU-") || gpu.starts_with("MIG-");
    const bool found = started_ && (is_index  ? by_index_(index, &device)
                                    : is_uuid ? by_uuid_(gpu.c_str(), &device)
                                              : by_bus_id_(gpu.c_str(), &device));
    return found ? device : nullptr;
  }

  Function<NvmlDevice, char*, uint32_t> name{library_, "nvmlDeviceGetName"}, uuid{library_, "nvmlDeviceGetUUID"};
  Function<NvmlDevice, uint32_t*> power{library_, "nvmlDeviceGetPowerUsage"};                // mW
  Function<NvmlDevice, uint32_t*> power_limit{library_, "nvmlDeviceGetEnforcedPowerLimit"};  // mW
  Function<NvmlDevice, uint64_t*> energy{library_, "nvmlDeviceGetTotalEnergyConsumption"};   // mJ since driver load
  Function<NvmlDevice, int, uint32_t*> clock{library_, "nvmlDeviceGetClockInfo"};            // MHz; SM 1, memory 2
  Function<NvmlDevice, int, uint32_t*> temperature{library_, "nvmlDeviceGetTemperature"};    // Celsius; sensor 0
  Function<NvmlDevice, NvmlMemory*> memory{library_, "nvmlDeviceGetMemoryInfo"};
  Function<NvmlDevice, NvmlUtilisation*> utilisation{library_, "nvmlDeviceGetUtilizationRates"};
  Function<NvmlDevice, uint64_t*> throttle{library_, "nvmlDeviceGetCurrentClocksThrottleReasons"};  // bits
  Function<NvmlDevice, int*> performance_state{library_, "nvmlDeviceGetPerformanceState"};
};

struct Reason {
  uint64_t bit;
  const char* name;
};
constexpr Reason kReasons[] = {
    {0x1, "idle"},           {0x2, "application_clocks"}, {0x4, "power_cap"},         {0x8, "hardware_slowdown"},
    {0x10, "sync_boost"},    {0x20, "software_thermal"},  {0x40, "hardware_thermal"}, {0x80, "power_brake"},
    {0x100, "display_clock"}};
// Faults of cooling or power supply. A GPU at its power cap does all the work that it may, so that is no fault.
constexpr uint64_t kFaults = 0x8 | 0x20 | 0x40 | 0x80, kPowerCap = 0x4;

class GpuProbe {
 public:
  GpuProbe(std::shared_ptr<const Nvml> nvml, NvmlDevice device) : nvml_(std::move(nvml)), device_(device) {}

  void operator()(Record& record, double seconds) {
    name_once(record, seconds);
    power(record, seconds);
    value(record, "gpu_sm_clock_mhz", nvml_->clock, 1, 1);
    value(record, "gpu_memory_clock_mhz", nvml_->clock, 1, 2);
    value(record, "gpu_temperature_celsius", nvml_->temperature, 1, 0);
    if (NvmlMemory memory{}; nvml_->memory(device_, &memory)) {
      record.add("gpu_memory_used_bytes", static_cast<double>(memory.used));
      record.add("gpu_memory_total_bytes", static_cast<double>(memory.total));
    }
    if (NvmlUtilisation utilisation{}; nvml_->utilisation(device_, &utilisation)) {
      record.add("gpu_utilisation_percent", utilisation.gpu);
    }
    if (int state = 0; nvml_->performance_state(device_, &state)) {
      record.add("gpu_performance_state", state);
    }
    throttling(record, seconds);
  }

 private:
  // Adds the name to the first record that is kept: the sample of 0 seconds only sets the counters.
  void name_once(Record& record, double seconds) {
    if (named_ || seconds == 0) {
      return;
    }
    std::array<char, 96> text{};
    if (nvml_->name(device_, text.data(), text.size())) {
      record.add("gpu_name", std::string(text.data()));
      named_ = true;
    }
    if (nvml_->uuid(device_, text.data(), text.size())) {
      record.add("gpu_uuid", std::string(text.data()));
    }
  }

  // The energy counter gives the mean over the whole stretch; GPUs before Volta have only the present power.
  void power(Record& record, double seconds) {
    std::optional<double> joules;
    if (uint64_t energy = 0; nvml_->energy(device_, &energy)) {
      joules = energy_.since(static_cast<double>(energy) / 1e3);
    }
    if (joules && seconds > 0) {
      record.add("gpu_power_watts", *joules / seconds);
    } else {
      value(record, "gpu_power_watts", nvml_->power, 1e-3);
    }
    value(record, "gpu_power_limit_watts", nvml_->power_limit, 1e-3);
  }

  void throttling(Record& record, double seconds) const {
    uint64_t bits = 0;
    if (!nvml_->throttle(device_, &bits)) {
      return;
    }
    std::string names;
    for (const Reason& reason : kReasons) {
      if ((bits & reason.bit) != 0) {
        names.append(names.empty() ? "" : ",").append(reason.name);
      }
    }
    if (!names.empty()) {
      record.add("gpu_throttle", names);
    }
    record.add("gpu_throttled_seconds", (bits & kFaults) != 0 ? seconds : 0);
    record.add("gpu_capped_seconds", (bits & kPowerCap) != 0 ? seconds : 0);
  }

  template <class Source, class... Kind>
  void value(Record& record, const char* name, const Source& source, double unit, Kind... kind) const {
    if (uint32_t number = 0; source(device_, kind..., &number)) {
      record.add(name, number * unit);
    }
  }

  std::shared_ptr<const Nvml> nvml_;
  NvmlDevice device_;
  bool named_ = false;
  Counter energy_;
};

}  // namespace

Probe make_gpu_probe(const std::string& gpu, const std::string& library) {
  if (gpu.empty()) {
    return nullptr;
  }
  const auto nvml = std::make_shared<const Nvml>(library);
  const NvmlDevice device = nvml->device(gpu);
  return device != nullptr ? Probe(GpuProbe(nvml, device)) : nullptr;
}

}  // namespace tandem::observe
