// Measures this host, this process and its GPU every few seconds, on a thread of its own.
//
// The thread's own cost is measured too (`probe_cpu_seconds`): where it would exceed 0.5 % of one core, samples come
// less often.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "observe/probes/probe.h"

namespace tandem::observe {

struct ProbeOptions {
  double period = 5;            // seconds between two samples
  std::filesystem::path run{};  // its filesystem's space is watched
  std::string interface {};     // that the run's traffic takes; empty = none
  std::string gpu{};            // PCI bus id, UUID or number; empty = none
  // CPU, memory, disk and network are the host's: one process of a host is enough.
  bool host = true;
  std::filesystem::path root = "/";  // of proc and sys
  std::string nvml = "libnvidia-ml.so.1";
};

// All sources together, without a thread.
class ProbeSet {
 public:
  explicit ProbeSet(const ProbeOptions& options);
  // What was measured since the last call (or since the making), with step 0.
  Record sample();

 private:
  Record measured(double seconds);

  std::vector<std::unique_ptr<Probe>> probes_;
  double last_ = 0;       // steady clock, seconds
  double last_cost_ = 0;  // of the thread that samples, CPU seconds
};

class HostProbes {
 public:
  // `write` gets a record of kind "probe" after each period and once at the end, from the probes' thread; it must not
  // throw. The record's step is 0: RunLog::write sets it. The last call is over before the destructor returns.
  HostProbes(const ProbeOptions& options, std::function<void(Record)> write);
  ~HostProbes();
  HostProbes(const HostProbes&) = delete;
  HostProbes& operator=(const HostProbes&) = delete;

 private:
  void work(const ProbeOptions& options);

  std::function<void(Record)> write_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tandem::observe
