#include "observe/probes/host_probes.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <mutex>

namespace tandem::observe {

namespace {

constexpr double kMostCost = 0.005;     // share of one core
constexpr double kShortestLast = 0.05;  // seconds; a shorter rest gets no last record

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void sample_until(const std::stop_token& stop, const ProbeOptions& options, const std::function<void(Record)>& write) {
  pthread_setname_np(pthread_self(), "tandem-probes");
  ProbeSet probes(options);
  Stopwatch watch;
  std::mutex mutex;
  std::condition_variable_any pause;  // only a stop request ends it early
  double cost = thread_cpu_seconds(), wait = options.period;
  for (bool end = false; !end;) {
    std::unique_lock lock(mutex);
    end = pause.wait_for(lock, stop, std::chrono::duration<double>(wait), [&] { return stop.stop_requested(); });
    if (watch.lap() < kShortestLast && end) {
      return;
    }
    write(probes.sample());
    const double spent = thread_cpu_seconds();
    wait = std::max(options.period, (spent - std::exchange(cost, spent)) / kMostCost);  // waking up included
  }
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
  measured(0);  // sets where the counters begin
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

HostProbes::HostProbes(const ProbeOptions& options, std::function<void(Record)> write) {
  // Only the main thread may get signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([=](const std::stop_token& stop) { sample_until(stop, options, write); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace tandem::observe
