#include "observe/verdicts/gpu_work.h"

#include <cmath>
#include <functional>

namespace tandem::observe {

namespace {

constexpr double kGood = 0.4, kSome = 0.1;  // shares of the measured peak
// Shares of the power limit. GPUs that wait draw 11 to 21 % of it, GPUs that work half of it or more.
constexpr double kLowPower = 0.35, kHighPower = 0.5;
constexpr double kBusy = 90;      // percent of "utilisation"
constexpr double kWaiting = 0.3;  // share of a step

// Mean of the finite values of `all`; NaN if there is none.
template <class Item, class Value>
double mean_of(const std::vector<Item>& all, const Value& value_of) {
  std::vector<double> known;
  for (const Item& item : all) {
    if (const double value = std::invoke(value_of, item); std::isfinite(value)) {
      known.push_back(value);
    }
  }
  return known.empty() ? kUnknown : mean(known);
}

void add_clocks(GpuWork& w, const std::vector<RankClock>& clocks) {
  const auto of_step = [&](double TrainPoint::*member) {
    return mean_of(clocks, [&](const RankClock& clock) { return clock.mean(member) / clock.step(); });
  };
  w.waits_for_network = of_step(&TrainPoint::communication_seconds);
  w.between = of_step(&TrainPoint::idle_seconds);
  w.idle = mean_of(clocks, [](const RankClock& clock) {
    return (clock.mean(&TrainPoint::communication_seconds) + clock.mean(&TrainPoint::data_seconds)) / clock.step();
  });
  w.dead_row_share = mean_of(clocks, [](const RankClock& clock) { return clock.sum.dead_row_share(); });
  const auto measured = [](const RankClock& clock) { return clock.sum.flops > 0 && clock.setup.peak_flops > 0; };
  w.achieved = mean_of(clocks, [&](const RankClock& clock) { return measured(clock) ? clock.rate() : kUnknown; });
  w.peak = mean_of(clocks, [&](const RankClock& clock) { return measured(clock) ? clock.setup.peak_flops : kUnknown; });
  for (const RankClock& clock : clocks) {
    const double share = clock.rate() / clock.setup.peak_flops;
    if (measured(clock) && !(share >= w.lowest)) {
      w.lowest = share;
      w.lowest_rank = clock.rank;
    }
  }
}

// Whether a rank computes on a GPU: its probes found one, or its backend is called cuda.
bool on_gpu(const RankMetrics& metrics, const ProbePoint& probe) {
  return !metrics.gpu_name.empty() || std::isfinite(probe.gpu_power_watts) ||
         setup_of(metrics).backend.find("cuda") != std::string::npos;
}

void add_probes(GpuWork& w, const RunData& run) {
  std::vector<ProbePoint> probes;
  for (const RankMetrics& metrics : run.ranks) {
    probes.push_back(probed_in_steps(metrics));
    for (const ProbePoint& point : metrics.probes) {
      if (point.gpu_throttled_seconds > 0 && w.reasons.size() < 8) {
        w.reasons.insert(point.gpu_throttle);
      }
    }
    w.gpu = w.gpu || on_gpu(metrics, probes.back());
  }
  w.power = mean_of(probes, &ProbePoint::gpu_power_watts);
  w.power_limit = mean_of(probes, &ProbePoint::gpu_power_limit_watts);
  w.utilisation = mean_of(probes, &ProbePoint::gpu_utilisation_percent);
  w.clock = mean_of(probes, &ProbePoint::gpu_sm_clock_mhz);
  w.throttled = mean_of(probes, [](const ProbePoint& probe) { return probe.gpu_throttled_seconds / probe.seconds; });
  w.capped = mean_of(probes, [](const ProbePoint& probe) { return probe.gpu_capped_seconds / probe.seconds; });
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

// Small kernels also keep a GPU busy at little power, but their steps do not wait.
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
