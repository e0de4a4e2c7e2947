// The few functions of NVIDIA's management library that the probes call, found at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tandem::observe {

// Types of nvml.h, whose binary interface is fixed. 0 = success.
struct NvmlMemory {
  uint64_t total, free, used;  // bytes
};
struct NvmlUtilisation {
  uint32_t gpu, memory;  // percent
};
using NvmlDevice = void*;

class Nvml {
 public:
  // Null where the library or a needed function is missing, or it does not start (no driver).
  static std::unique_ptr<Nvml> open(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // `gpu`: PCI bus id ("0000:65:00.0"), UUID ("GPU-...") or number. Null = no such GPU.
  NvmlDevice device(const std::string& gpu) const;

  // Null where the library is too old to have it.
  int (*name)(NvmlDevice, char*, uint32_t) = nullptr;
  int (*uuid)(NvmlDevice, char*, uint32_t) = nullptr;
  int (*power)(NvmlDevice, uint32_t*) = nullptr;             // mW
  int (*power_limit)(NvmlDevice, uint32_t*) = nullptr;       // mW
  int (*energy)(NvmlDevice, uint64_t*) = nullptr;            // mJ since the driver came up
  int (*clock)(NvmlDevice, int, uint32_t*) = nullptr;        // MHz; kind 1 = SM, 2 = memory
  int (*temperature)(NvmlDevice, int, uint32_t*) = nullptr;  // Celsius; sensor 0
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*utilisation)(NvmlDevice, NvmlUtilisation*) = nullptr;
  int (*throttle)(NvmlDevice, uint64_t*) = nullptr;  // bits
  int (*performance_state)(NvmlDevice, int*) = nullptr;

 private:
  Nvml() = default;
  bool load(const std::string& library);

  void* library_ = nullptr;
  int (*shutdown_)() = nullptr;  // set once the library is started
  int (*by_bus_id_)(const char*, NvmlDevice*) = nullptr;
  int (*by_uuid_)(const char*, NvmlDevice*) = nullptr;
  int (*by_index_)(uint32_t, NvmlDevice*) = nullptr;
};

}  // namespace tandem::observe
