#include "observe/verdicts/gpu_work.h"

#include <algorithm>
#include <cmath>

namespace tandem::observe {

namespace {

constexpr double kGood = 0.4, kSome = 0.1;  // of the measured peak
// Of the power limit. GPUs that wait draw 11 to 21 % of it, GPUs that work half and more.
constexpr double kLowPower = 0.35, kHighPower = 0.5;
constexpr double kBusy = 90;      // percent of "utilisation"
constexpr double kWaiting = 0.3;  // of a step

class Mean {
 public:
  void add(double value) {
    if (std::isfinite(value)) {
      sum_ += value;
      ++count_;
    }
  }
  double value() const { return count_ > 0 ? sum_ / count_ : kUnknown; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

void add_clocks(GpuWork& w, const std::vector<RankClock>& clocks) {
  Mean achieved, peak, idle, between, network, dead_row_share;
  for (const RankClock& clock : clocks) {
    const double communication = clock.mean(&TrainPoint::communication_seconds);
    idle.add((communication + clock.mean(&TrainPoint::data_seconds)) / clock.step());
    between.add(clock.mean(&TrainPoint::idle_seconds) / clock.step());
    network.add(communication / clock.step());
    dead_row_share.add(clock.sum.dead_row_share());
    if (clock.sum.flops > 0 && clock.setup.peak_flops > 0) {
      achieved.add(clock.rate());
      peak.add(clock.setup.peak_flops);
      const double share = clock.rate() / clock.setup.peak_flops;
      if (!(share >= w.lowest)) {
        w.lowest = share;
        w.lowest_rank = clock.rank;
      }
    }
  }
  w.achieved = achieved.value(), w.peak = peak.value(), w.idle = idle.value(), w.waits_for_network = network.value();
  w.between = between.value(), w.dead_row_share = dead_row_share.value();
}

void add_probes(GpuWork& w, const RunData& run) {
  Mean power, limit, utilisation, clock, throttled, capped;
  for (const RankMetrics& metrics : run.ranks) {
    const ProbePoint probe = probed_in_steps(metrics);
    power.add(probe.gpu_power_watts);
    limit.add(probe.gpu_power_limit_watts);
    utilisation.add(probe.gpu_utilisation_percent);
    clock.add(probe.gpu_sm_clock_mhz);
    throttled.add(probe.seconds > 0 ? probe.gpu_throttled_seconds / probe.seconds : kUnknown);
    capped.add(probe.seconds > 0 ? probe.gpu_capped_seconds / probe.seconds : kUnknown);
    for (const ProbePoint& point : metrics.probes) {
      if (point.gpu_throttled_seconds > 0 && w.reasons.size() < 8) {
        w.reasons.insert(point.gpu_throttle);
      }
    }
    w.gpu = w.gpu || !metrics.gpu_name.empty() || std::isfinite(probe.gpu_power_watts) ||
            setup_of(metrics).backend.find("cuda") != std::string::npos;
  }
  w.power = power.value(), w.power_limit = limit.value(), w.utilisation = utilisation.value();
  w.clock = clock.value(), w.throttled = throttled.value(), w.capped = capped.value();
}

const char* label_of(const GpuWork& w) {
  const double share = w.share(), power = w.power_share();
  if (w.spins() && !(share >= kGood)) {
    return "spinning";
  }
  if (std::isfinite(share)) {
    return share >= kGood ? "working" : share >= kSome ? "partly" : "hardly";
  }
  if (std::isfinite(power)) {
    return power >= kHighPower ? "working" : power >= kLowPower ? "partly" : "hardly";
  }
  return "empty";
}

}  // namespace

// Small kernels are busy at little power too, but their steps do not wait.
bool GpuWork::spins() const {
  const bool waits = std::isfinite(idle) ? idle >= kWaiting : !(share() >= kSome);
  return utilisation >= kBusy && power_share() < kLowPower && waits;
}

GpuWork gpu_work_of(const RunData& run, const std::vector<RankClock>& clocks) {
  GpuWork w{.many_ranks = ranks_of(run) > 1, .windows = clocks.empty() ? 0 : clocks.front().windows.size()};
  add_clocks(w, clocks);
  add_probes(w, run);
  return w;
}

Verdict gpu_work(const GpuWork& w) {
  Verdict v{.label = label_of(w)};
  v.add("achieved", w.achieved, "FLOP/s").add("peak", w.peak, "FLOP/s").add("share_of_peak", w.share());
  v.add("lowest_share_of_peak", w.lowest).add("lowest_rank", w.lowest_rank);
  v.add("idle_share", w.idle).add("network_share", w.waits_for_network).add("device_idle_share", w.between);
  v.add("dead_row_share", w.dead_row_share);
  v.add("power", w.power, "W").add("power_limit", w.power_limit, "W").add("power_share", w.power_share());
  v.add("utilisation", w.utilisation, "%").add("sm_clock", w.clock, "MHz").add("throttled_share", w.throttled);
  v.add("power_capped_share", w.capped);
  if (std::isfinite(w.share()) && !w.exceeds_peak()) {
    v.confidence = confidence_by(w.windows);
  }
  return v;
}

}  // namespace tandem::observe
