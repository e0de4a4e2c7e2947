#include "observe/verdicts/gpu_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/units.h"
#include "observe/verdicts/rank_clock.h"

namespace tandem {

namespace {

constexpr double kGood = 0.4, kSome = 0.1;  // of the measured peak
// Of the power limit. GPUs that wait draw 11 to 21 % of it, GPUs that work half and more.
constexpr double kLowPower = 0.35, kHighPower = 0.5;
constexpr double kBusy = 90;      // percent of "utilisation"
constexpr double kWaiting = 0.3;  // of a step
constexpr double kManyDeadRows = 0.03;

// Means over ranks; NaN = not measured on any.
struct Work {
  double achieved = kUnknown, peak = kUnknown;  // FLOP/s of a rank
  double lowest = kUnknown;                     // share of the peak, of the rank that has least
  int lowest_rank = -1;
  double idle = kUnknown;     // share of a step that waits for data or the network
  double between = kUnknown;  // share of a step that the device idles before it
  double waits_for_network = kUnknown;
  double dead_rows = kUnknown;  // share of the rows that hold no token
  double power = kUnknown, power_limit = kUnknown, utilisation = kUnknown, clock = kUnknown;
  double throttled = kUnknown, capped = kUnknown;  // share of time: by a fault, by the power limit
  std::set<std::string> reasons;
  bool gpu = false;

  double share() const { return achieved / peak; }
  double power_share() const { return power / power_limit; }
};

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

void add_clocks(Work& w, const std::vector<RankClock>& clocks) {
  Mean achieved, peak, idle, between, network, dead_rows;
  for (const RankClock& clock : clocks) {
    idle.add((clock.communication + clock.data) / clock.step);
    between.add(clock.idle / clock.step);
    network.add(clock.communication / clock.step);
    dead_rows.add(clock.dead_rows);
    if (clock.flops > 0 && clock.setup.peak_flops > 0) {
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
  w.between = between.value(), w.dead_rows = dead_rows.value();
}

void add_probes(Work& w, const RunData& run) {
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

// Busy at little power. Small kernels look the same, but their steps do not wait.
bool spins(const Work& w) {
  const bool waits = std::isfinite(w.idle) ? w.idle >= kWaiting : !(w.share() >= kSome);
  return w.utilisation >= kBusy && w.power_share() < kLowPower && waits;
}

const char* label_of(const Work& w) {
  const double share = w.share(), power = w.power_share();
  if (spins(w) && !(share >= kGood)) {
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

std::string opening(const std::string& label, const Work& w) {
  const std::string what = w.gpu ? "the GPUs" : "the CPU";
  return label == "working"    ? "Yes"
         : label == "partly"   ? "In part"
         : label == "spinning" ? "No, " + what + " mostly wait in a spinning kernel"
                               : "Hardly";
}

// No step is faster than its own products; where it seems so, they were measured while something else ran.
bool exceeds_peak(const Work& w) { return w.share() > 1.03; }

std::string arithmetic_text(const Work& w) {
  if (!std::isfinite(w.share())) {
    return "";
  }
  return exceeds_peak(w)
             ? fmt::format(
                   ": {} a rank, more than the {} that matrix products reached when the run began, so something "
                   "else used the hardware then",
                   flops_text(w.achieved), flops_text(w.peak))
             : fmt::format(": {} a rank, {} of the {} that matrix products reach here", flops_text(w.achieved),
                           percent_text(w.share()), flops_text(w.peak));
}

std::string power_text(const Work& w) {
  if (!std::isfinite(w.power)) {
    return "";
  }
  std::string text = fmt::format("; power {:.0f} W", w.power);
  if (std::isfinite(w.power_limit)) {
    text += fmt::format(" of {:.0f} W ({})", w.power_limit, percent_text(w.power_share()));
    if (w.capped > kWorth && std::isfinite(w.clock)) {
      text += fmt::format(", the limit that holds the clock down, to {:.0f} MHz in the mean", w.clock);
    }
  }
  return text;
}

std::string warning_text(const Work& w) {
  if (!(w.utilisation >= 0)) {
    return "";
  }
  return spins(w) ? fmt::format(
                        "; the \"utilisation\" of {:.0f} % at {:.0f} W is a kernel that spins while it waits, not work",
                        w.utilisation, w.power)
                  : fmt::format("; \"utilisation\" {:.0f} %, which says only that some kernel ran", w.utilisation);
}

std::string throttle_text(const Work& w) {
  if (!(w.throttled > 0.01)) {
    return "";
  }
  std::string reasons;
  for (const std::string& reason : w.reasons) {
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  return fmt::format("; slowed down for heat or power {} of the time ({})", percent_text(w.throttled), reasons);
}

void add_figures(Verdict& v, const Work& w) {
  v.add("achieved", w.achieved, "FLOP/s").add("peak", w.peak, "FLOP/s").add("share_of_peak", w.share());
  v.add("lowest_share_of_peak", w.lowest).add("lowest_rank", w.lowest_rank);
  v.add("idle_share", w.idle).add("network_share", w.waits_for_network).add("device_idle_share", w.between);
  v.add("dead_row_share", w.dead_rows);
  v.add("power", w.power, "W").add("power_limit", w.power_limit, "W").add("power_share", w.power_share());
  v.add("utilisation", w.utilisation, "%").add("sm_clock", w.clock, "MHz").add("throttled_share", w.throttled);
  v.add("power_capped_share", w.capped);
}

}  // namespace

Verdict gpu_work(const RunData& run) {
  const std::vector<RankClock> clocks = clocks_of(run);
  Work w;
  add_clocks(w, clocks);
  add_probes(w, run);
  Verdict v{.key = "gpu_work",
            .question = w.gpu ? "Are the GPUs doing work?" : "Is the hardware doing work?",
            .label = label_of(w),
            .answer = ""};
  add_figures(v, w);
  if (v.label == "empty") {
    v.answer =
        "That cannot be said: neither the arithmetic of a step against the hardware's peak nor power is recorded.";
    return v;
  }
  v.confidence = std::isfinite(w.share()) ? confidence_by(clocks.front().windows.size()) : Confidence::low;
  if (exceeds_peak(w)) {
    v.confidence = Confidence::low;
  }
  v.answer = opening(v.label, w) + arithmetic_text(w) + power_text(w);
  if (std::isfinite(w.idle)) {
    v.answer += fmt::format("; {} of a step waits for data{}", percent_text(w.idle),
                            ranks_of(run) > 1 ? ", the network or other ranks" : "");
  }
  if (w.gpu && w.between > 0) {
    v.answer += fmt::format(", and between two steps the GPU idles for {} of one", percent_text(w.between));
  }
  if (w.dead_rows >= kManyDeadRows) {
    v.answer += fmt::format("; {} of the rows that it works through hold no token", percent_text(w.dead_rows));
  }
  v.answer += warning_text(w) + throttle_text(w) + ".";
  return v;
}

}  // namespace tandem
