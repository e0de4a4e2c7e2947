#include "observe/probes/host_probes.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>

namespace tandem::observe {

namespace {

constexpr double kMostCost = 0.005;     // of one core
constexpr double kShortestLast = 0.05;  // seconds that are worth a last record

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

ProbeSet::ProbeSet(const ProbeOptions& options) {
  if (Probe gpu = make_gpu_probe(options.gpu, options.nvml)) {
    probes_.push_back(std::move(gpu));
  }
  if (options.host) {
    probes_.push_back(make_cpu_probe(options.root));
    probes_.push_back(make_memory_probe(options.root));
    probes_.push_back(make_disk_probe(options.root, options.run));
    probes_.push_back(make_network_probe(options.root, options.interface));
  }
  probes_.push_back(make_process_probe(options.root));
  watch_.lap();
  last_cost_ = thread_cpu_seconds();
  measured(0);  // where the counters begin
}

Record ProbeSet::sample() {
  const double seconds = std::max(watch_.lap(), 1e-6), cost = thread_cpu_seconds();
  Record record = measured(seconds);
  record.add("probe_cpu_seconds", cost - std::exchange(last_cost_, cost));
  return record;
}

Record ProbeSet::measured(double seconds) {
  Record record{.kind = "probe"};
  record.add("seconds", seconds);
  for (const Probe& probe : probes_) {
    probe(record, seconds);
  }
  return record;
}

HostProbes::HostProbes(const ProbeOptions& options, std::function<void(Record)> write) : write_(std::move(write)) {
  // Signals are for the main thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, options] { work(options); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

HostProbes::~HostProbes() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void HostProbes::work(const ProbeOptions& options) {
  pthread_setname_np(pthread_self(), "tandem-probes");
  ProbeSet probes(options);
  Stopwatch watch;
  double cost = thread_cpu_seconds(), wait = options.period;
  for (bool end = false; !end;) {
    {
      std::unique_lock lock(mutex_);
      end = stop_.wait_for(lock, std::chrono::duration<double>(wait), [this] { return stopping_; });
    }
    if (watch.lap() < kShortestLast && end) {
      return;
    }
    write_(probes.sample());
    const double spent = thread_cpu_seconds();
    wait = std::max(options.period, (spent - std::exchange(cost, spent)) / kMostCost);  // the waking up included
  }
}

}  // namespace tandem::observe
