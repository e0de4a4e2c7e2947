// Answers like NVML about one made-up GPU. The environment says how:
//   FAKE_NVML_POWER        milliwatts, default 45000
//   FAKE_NVML_UTILISATION  percent, default 100
//   FAKE_NVML_THROTTLE     bits, default 0
//   FAKE_NVML_FAIL         the name of a function that fails
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

uint32_t setting(const char* name, uint32_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? static_cast<uint32_t>(std::strtoul(value, nullptr, 10)) : otherwise;
}

bool fails(const char* name) {
  const char* wanted = std::getenv("FAKE_NVML_FAIL");
  return wanted != nullptr && std::strcmp(wanted, name) == 0;
}

int give(const char* function, uint32_t* place, uint32_t value) {
  if (fails(function)) {
    return 3;  // not supported
  }
  *place = value;
  return 0;
}

int give_text(const char* function, char* place, uint32_t size, const char* text) {
  if (fails(function) || std::strlen(text) + 1 > size) {
    return 3;
  }
  std::strcpy(place, text);
  return 0;
}

int gpu = 0;

int handle(const char* function, bool there, void** device) {
  if (fails(function) || !there) {
    return 6;  // not found
  }
  *device = &gpu;
  return 0;
}

struct Memory {
  uint64_t total, free, used;
};
struct Utilisation {
  uint32_t gpu, memory;
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return fails("nvmlInit_v2") ? 9 : 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  return handle("nvmlDeviceGetHandleByPciBusId_v2", std::strcmp(id, "0000:65:00.0") == 0, device);
}
int nvmlDeviceGetHandleByUUID(const char* id, void** device) {
  return handle("nvmlDeviceGetHandleByUUID", std::strcmp(id, "GPU-1234") == 0, device);
}
int nvmlDeviceGetHandleByIndex_v2(uint32_t index, void** device) {
  return handle("nvmlDeviceGetHandleByIndex_v2", index == 0, device);
}
int nvmlDeviceGetName(void*, char* name, uint32_t size) {
  return give_text("nvmlDeviceGetName", name, size, "Fake V100");
}
int nvmlDeviceGetUUID(void*, char* uuid, uint32_t size) {
  return give_text("nvmlDeviceGetUUID", uuid, size, "GPU-1234");
}
int nvmlDeviceGetPowerUsage(void*, uint32_t* milliwatts) {
  return give("nvmlDeviceGetPowerUsage", milliwatts, setting("FAKE_NVML_POWER", 45000));
}
int nvmlDeviceGetEnforcedPowerLimit(void*, uint32_t* milliwatts) {
  return give("nvmlDeviceGetEnforcedPowerLimit", milliwatts, 250000);
}
int nvmlDeviceGetTotalEnergyConsumption(void*, uint64_t* millijoules) {
  if (fails("nvmlDeviceGetTotalEnergyConsumption")) {
    return 3;
  }
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const double seconds = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  *millijoules = static_cast<uint64_t>(seconds * setting("FAKE_NVML_POWER", 45000));
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int kind, uint32_t* megahertz) {
  return give("nvmlDeviceGetClockInfo", megahertz, kind == 1 ? 1380 : 877);
}
int nvmlDeviceGetTemperature(void*, int, uint32_t* celsius) { return give("nvmlDeviceGetTemperature", celsius, 41); }
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {16000000000, 6000000000, 10000000000};
  return fails("nvmlDeviceGetMemoryInfo") ? 3 : 0;
}
int nvmlDeviceGetUtilizationRates(void*, Utilisation* rates) {
  *rates = {setting("FAKE_NVML_UTILISATION", 100), 7};
  return fails("nvmlDeviceGetUtilizationRates") ? 3 : 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, uint64_t* bits) {
  *bits = setting("FAKE_NVML_THROTTLE", 0);
  return fails("nvmlDeviceGetCurrentClocksThrottleReasons") ? 3 : 0;
}
int nvmlDeviceGetPerformanceState(void*, int* state) {
  *state = 2;
  return fails("nvmlDeviceGetPerformanceState") ? 3 : 0;
}
}
