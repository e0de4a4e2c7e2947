#include <array>

#include "observe/probes/nvml.h"
#include "observe/probes/probe.h"

namespace tandem::observe {

namespace {

struct Reason {
  uint64_t bit;
  const char* name;
};
constexpr Reason kReasons[] = {
    {0x1, "idle"},           {0x2, "application_clocks"}, {0x4, "power_cap"},         {0x8, "hardware_slowdown"},
    {0x10, "sync_boost"},    {0x20, "software_thermal"},  {0x40, "hardware_thermal"}, {0x80, "power_brake"},
    {0x100, "display_clock"}};
// Heat and power supply. A GPU at its power cap is doing all the work that it may, so that is no fault.
constexpr uint64_t kFaults = 0x8 | 0x20 | 0x40 | 0x80, kPowerCap = 0x4;
constexpr int kSmClock = 1, kMemoryClock = 2;

class GpuProbe final : public Probe {
 public:
  GpuProbe(std::unique_ptr<Nvml> nvml, NvmlDevice device) : nvml_(std::move(nvml)), device_(device) {}

  void sample(Record& record, double seconds) override {
    name_once(record, seconds);
    power(record, seconds);
    value(record, "gpu_sm_clock_mhz", nvml_->clock, 1, kSmClock);
    value(record, "gpu_memory_clock_mhz", nvml_->clock, 1, kMemoryClock);
    value(record, "gpu_temperature_celsius", nvml_->temperature, 1, 0);
    NvmlMemory memory{};
    if (nvml_->memory != nullptr && nvml_->memory(device_, &memory) == 0) {
      record.add("gpu_memory_used_bytes", static_cast<double>(memory.used));
      record.add("gpu_memory_total_bytes", static_cast<double>(memory.total));
    }
    NvmlUtilisation utilisation{};
    if (nvml_->utilisation != nullptr && nvml_->utilisation(device_, &utilisation) == 0) {
      record.add("gpu_utilisation_percent", utilisation.gpu);
    }
    int state = 0;
    if (nvml_->performance_state != nullptr && nvml_->performance_state(device_, &state) == 0) {
      record.add("gpu_performance_state", state);
    }
    throttling(record, seconds);
  }

 private:
  // In the first record that is kept: the sample of no time only sets the counters.
  void name_once(Record& record, double seconds) {
    if (named_ || seconds == 0) {
      return;
    }
    std::array<char, 96> text{};
    if (nvml_->name != nullptr && nvml_->name(device_, text.data(), text.size()) == 0) {
      record.add("gpu_name", std::string(text.data()));
      named_ = true;
    }
    if (nvml_->uuid != nullptr && nvml_->uuid(device_, text.data(), text.size()) == 0) {
      record.add("gpu_uuid", std::string(text.data()));
    }
  }

  // The energy counter gives the mean over the whole stretch; GPUs before Volta have only the moment's power.
  void power(Record& record, double seconds) {
    uint64_t energy = 0;
    std::optional<double> joules;
    if (nvml_->energy != nullptr && nvml_->energy(device_, &energy) == 0) {
      joules = energy_.since(static_cast<double>(energy) / 1e3);
    }
    if (joules && seconds > 0) {
      record.add("gpu_power_watts", *joules / seconds);
    } else {
      value(record, "gpu_power_watts", nvml_->power, 1e-3);
    }
    value(record, "gpu_power_limit_watts", nvml_->power_limit, 1e-3);
  }

  void throttling(Record& record, double seconds) {
    uint64_t bits = 0;
    if (nvml_->throttle == nullptr || nvml_->throttle(device_, &bits) != 0) {
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

  template <class Function, class... Kind>
  void value(Record& record, const char* name, Function* function, double unit, Kind... kind) {
    uint32_t number = 0;
    if (function != nullptr && function(device_, kind..., &number) == 0) {
      record.add(name, number * unit);
    }
  }

  std::unique_ptr<Nvml> nvml_;
  NvmlDevice device_;
  bool named_ = false;
  Counter energy_;
};

}  // namespace

std::unique_ptr<Probe> make_gpu_probe(const std::string& gpu, const std::string& library) {
  std::unique_ptr<Nvml> nvml = gpu.empty() ? nullptr : Nvml::open(library);
  const NvmlDevice device = nvml ? nvml->device(gpu) : nullptr;
  return device != nullptr ? std::make_unique<GpuProbe>(std::move(nvml), device) : nullptr;
}

}  // namespace tandem::observe
