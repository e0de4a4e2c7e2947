// Measures this host, this process and its GPU every few seconds, on a thread of its own.
//
// The thread's own cost is measured too (`probe_cpu_seconds`): if it would exceed 0.5 % of one core, samples come less
// often.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/stopwatch.h"
#include "observe/metrics.h"

namespace tandem::observe {

// A source of measurements (/proc, /sys or NVML), called every `seconds`: it adds its fields to a record of kind
// "probe" (docs/formats.md). Values that cannot be read or make no sense are left out: a probe never fails and never
// guesses. Counters are recorded as their growth since the last sample, so the first one, of 0 seconds, has none.
using Probe = std::function<void(Record& record, double seconds)>;

// `root` has proc and sys below it: "/" except in tests.
Probe make_cpu_probe(const std::filesystem::path& root);
Probe make_memory_probe(const std::filesystem::path& root);
Probe make_process_probe(const std::filesystem::path& root);
// Measures the filesystem that `directory` lies on.
Probe make_disk_probe(const std::filesystem::path& root, const std::filesystem::path& directory);
// Measures every interface that is up and has an address as net.<name>.*, at most 16, and the run's own `interface`
// also as network_*; empty = the run uses none.
Probe make_network_probe(const std::filesystem::path& root, const std::string& interface);
// `gpu`: PCI bus id ("0000:65:00.0"), UUID ("GPU-...") or number. Empty if NVML or that GPU is missing. `library`:
// NVML's name for dlopen.
constexpr const char* kNvml = "libnvidia-ml.so.1";
Probe make_gpu_probe(const std::string& gpu, const std::string& library = kNvml);

// A counter that should only grow.
class Counter {
 public:
  // The growth since the last call; nothing on the first one, and if the counter went back (reset, overflow).
  std::optional<double> since(double now) {
    const std::optional<double> before = std::exchange(last_, now);
    return before && now >= *before ? std::optional(now - *before) : std::nullopt;
  }

 private:
  std::optional<double> last_;
};

struct ProbeOptions {
  double period = 5;            // seconds between two samples
  std::filesystem::path run{};  // its filesystem's space is watched
  std::string interface {};     // interface of the run's traffic; empty = none
  std::string gpu{};            // GPU as for make_gpu_probe(); empty = none
  // CPU, memory, disk and network belong to the host: one process of each host measures them.
  bool host = true;
  std::filesystem::path root = "/";
  std::string nvml = kNvml;
};

// The most resident memory that this process has used so far (VmHWM), in bytes; 0 if not known.
int64_t peak_memory();

// All sources together, without a thread.
class ProbeSet {
 public:
  explicit ProbeSet(const ProbeOptions& options);
  // What was measured since the last call (or the construction), with step 0.
  Record sample();

 private:
  Record measured(double seconds);

  std::vector<Probe> probes_;
  Stopwatch watch_;
  double last_cost_ = 0;  // CPU seconds of the sampling thread
};

class HostProbes {
 public:
  // `write` is called with a record of kind "probe" after each period and once at the end, from the probes' thread; it
  // must not throw. The record's step is 0: RunLog::write sets it. The last call is over before the destructor returns.
  HostProbes(const ProbeOptions& options, std::function<void(Record)> write);

 private:
  std::jthread thread_;
};

}  // namespace tandem::observe
