#include "observe/verdicts/exchange.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace tandem::observe {

namespace {

// Header bytes of a TCP segment (or bare acknowledgement) over Ethernet with IPv4 and timestamps: 14 + 20 + 32.
constexpr double kHeaderBytes = 66;
constexpr double kLevel = 1e-9;  // relative spread below which a series counts as constant

// Sums of waits; each add() takes the same steps of all ranks.
struct WaitSums {
  Waits sums{};  // seconds in all, not per step
  double steps = 0, waiting = 0;

  void add(const std::vector<TrainPoint>& ranks) {
    const auto by_wait = [](const TrainPoint& a, const TrainPoint& b) {
      return a.communication_seconds < b.communication_seconds;
    };
    const TrainPoint& slowest = *std::min_element(ranks.begin(), ranks.end(), by_wait);
    double transfer = slowest.transfer_seconds;
    for (const TrainPoint& rank : ranks) {
      waiting += rank.communication_seconds / static_cast<double>(ranks.size());
      transfer = std::min(transfer, rank.transfer_seconds);
    }
    steps += slowest.steps;
    sums.step += slowest.step_seconds();
    sums.compute += slowest.compute_seconds;
    sums.data += slowest.data_seconds;
    sums.exposed += slowest.communication_seconds;
    sums.transfer += transfer;
  }

  Waits mean() const {
    Waits w{.step = sums.step / steps, .compute = sums.compute / steps, .data = sums.data / steps};
    w.exposed = sums.exposed / steps, w.others = std::max(waiting - sums.exposed, 0.0) / steps;
    w.measured = sums.transfer / steps >= w.exposed && sums.transfer > 0;
    w.transfer = w.measured ? sums.transfer / steps : w.exposed;
    return w;
  }
};

double node_of(const RankClock& clock) { return std::isnan(clock.setup.node) ? -1 - clock.rank : clock.setup.node; }

double payload_over_planned(const RankClock& clock) {
  const ProbePoint& probe = clock.probe;
  const double payload = probe.network_sent_bytes - kHeaderBytes * probe.network_sent_packets;
  const double per_step = payload / probe.seconds * clock.wall() / clock.sum.steps;
  return clock.setup.planned_sent_bytes > 0 ? per_step / clock.setup.planned_sent_bytes : kUnknown;
}

// Share of a step's bytes with bf16 gradients. f64 come back as f32; a sharded optimizer sends back f32 weights.
double bf16_share(const SetupPoint& setup) {
  const double back = setup.sharded > 0 ? 4 : 2;
  return setup.wire == "f32" ? (2 + back) / 8 : setup.wire == "f64" ? (2 + back) / 12 : kUnknown;
}

bool varies(const std::vector<double>& values) { return deviation(values) > kLevel * std::fabs(mean(values)); }

// Pearson's correlation; NaN if one of them does not vary.
double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  if (!varies(x) || !varies(y)) {
    return kUnknown;
  }
  const double mx = mean(x), my = mean(y);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum += (x[i] - mx) * (y[i] - my);
  }
  return sum / (static_cast<double>(x.size()) - 1) / deviation(x) / deviation(y);
}

WaitAndStep together_of(const RankClock& clock) {
  std::vector<double> step, wait, bytes, rate;
  for (const TrainPoint& point : clock.windows) {
    step.push_back(point.step_seconds() / point.steps);
    wait.push_back(point.communication_seconds / point.steps);
    bytes.push_back(point.sent_bytes / point.steps);
    rate.push_back(point.sent_bytes / point.step_seconds());
  }
  WaitAndStep t{.windows = step.size()};
  if (t.windows >= kFewestWindowsTogether) {
    t.bytes_spread = deviation(bytes) / mean(bytes);
    t.correlation = correlation(wait, step), t.rate_correlation = correlation(rate, step);
    t.fit = std::isfinite(t.correlation) ? fit_line(wait, step) : LineFit{};
  }
  return t;
}

// Standard error of a rank's mean own time per step.
double error_of(const RankClock& clock) {
  std::vector<double> own;
  for (const TrainPoint& point : clock.windows) {
    own.push_back((point.compute_seconds + point.data_seconds) / point.steps);
  }
  return deviation(own) / std::sqrt(static_cast<double>(own.size()));
}

// A rank's own time per step in the newest third of its windows.
double own_lately(const RankClock& clock) {
  const TrainPoint newest = total(std::span(clock.windows).last((clock.windows.size() + 2) / 3));
  return (newest.compute_seconds + newest.data_seconds) / newest.steps;
}

template <class Value>
double median_of_others(const std::vector<RankClock>& clocks, const RankClock& one, const Value& value) {
  std::vector<double> values;
  for (const RankClock& clock : clocks) {
    if (clock.rank != one.rank && std::isfinite(value(clock))) {
      values.push_back(value(clock));
    }
  }
  return values.empty() ? kUnknown : median(std::move(values));
}

// Needs two ranks.
SlowestRank slowest_of(const std::vector<RankClock>& clocks) {
  const RankClock& slow = *std::max_element(clocks.begin(), clocks.end(),
                                            [](const RankClock& a, const RankClock& b) { return a.own() < b.own(); });
  const auto others = [&](const auto& value) { return median_of_others(clocks, slow, value); };
  const auto data = [](const RankClock& clock) { return clock.mean(&TrainPoint::data_seconds); };
  SlowestRank s{.name = slow.name(), .rank = slow.rank, .windows = slow.windows.size(), .step = slow.step()};
  s.own = slow.own(), s.others = others([](const RankClock& clock) { return clock.own(); });
  s.noise = std::hypot(error_of(slow), others(error_of));
  s.alike = static_cast<int>(std::count_if(
      clocks.begin(), clocks.end(), [&](const RankClock& clock) { return clock.own() - s.others > s.excess() / 2; }));
  s.lately = own_lately(slow) - others(own_lately);
  s.data = data(slow) - others(data);
  s.throttled = slow.probe.seconds > 0 ? slow.probe.gpu_throttled_seconds / slow.probe.seconds : kUnknown;
  s.clock_mhz = slow.probe.gpu_sm_clock_mhz;
  s.others_mhz = others([](const RankClock& clock) { return clock.probe.gpu_sm_clock_mhz; });
  return s;
}

// Adds up window by window, as another rank may be the slowest in each; uses means if the ranks' windows do not match.
// Needs at least one rank.
Waits waits_of(const std::vector<RankClock>& clocks) {
  std::map<int64_t, std::vector<TrainPoint>> windows;
  std::vector<TrainPoint> sums;
  for (const RankClock& clock : clocks) {
    sums.push_back(clock.sum);
    for (const TrainPoint& point : clock.windows) {
      windows[point.step].push_back(point);
    }
  }
  WaitSums matched, means;
  for (const auto& [step, ranks] : windows) {
    const auto same = [&, steps = ranks.front().steps](const TrainPoint& point) { return point.steps == steps; };
    if (ranks.size() == clocks.size() && std::all_of(ranks.begin(), ranks.end(), same)) {
      matched.add(ranks);
    }
  }
  means.add(sums);
  return matched.steps >= means.steps / 2 ? matched.mean() : means.mean();
}

// Uses the interfaces' counters or, if there are none, the ranks' own counts.
LinkTraffic link_traffic(const std::vector<RankClock>& clocks, int ranks) {
  LinkTraffic link;
  std::map<double, int> nodes;  // ranks by node; without setup records every rank is taken to have its own
  for (const RankClock& clock : clocks) {
    ++nodes[node_of(clock)];
  }
  const bool alone = nodes.size() == clocks.size();
  link.one_host = nodes.size() == 1 && ranks == static_cast<int>(clocks.size());
  double counted = kUnknown;
  for (const RankClock& clock : clocks) {
    const double own =
        std::max(clock.mean(&TrainPoint::sent_bytes), clock.mean(&TrainPoint::received_bytes)) / clock.step();
    counted = alone && !(counted > own) ? own : counted;
    const ProbePoint& probe = clock.probe;
    link.dropped += std::isnan(probe.network_sent_dropped) ? 0 : probe.network_sent_dropped;
    link.dropped += std::isnan(probe.network_received_dropped) ? 0 : probe.network_received_dropped;
    if (!(probe.seconds > 0) || std::isnan(probe.network_sent_bytes) || std::isnan(probe.network_received_bytes)) {
      continue;
    }
    // Nothing is exchanged during pauses.
    const double stretched = clock.wall() / (clock.step() * clock.sum.steps);
    const double rate = std::max(probe.network_sent_bytes, probe.network_received_bytes) / probe.seconds * stretched;
    if (!(link.bytes_per_second >= rate)) {
      link.bytes_per_second = rate;
      link.with_headers = true;
      link.ranks = nodes.at(node_of(clock));
      link.stated_bits = probe.network_link_bits_per_second;
    }
    if (alone && std::isnan(link.payload_over_planned)) {
      link.payload_over_planned = payload_over_planned(clock);
    }
  }
  if (std::isnan(link.bytes_per_second)) {
    link.bytes_per_second = counted;
  }
  return link;
}

}  // namespace

double Waits::step_with_share(double share) const {
  const double hidden = transfer - exposed;
  return step_without_network() + std::max(transfer * share - hidden, 0.0);
}

Bottleneck Waits::bottleneck() const {
  if (exposed_share() >= kWorth) {
    return exposed >= std::max(compute, data) ? Bottleneck::network : Bottleneck::network_in_part;
  }
  return ranks_wait() ? Bottleneck::slow_rank : Bottleneck::none;
}

SlowCause SlowestRank::cause() const {
  return data > excess() / 2                         ? SlowCause::data
         : throttled > kWorth                        ? SlowCause::throttled
         : clock_mhz < (1 - kWorth / 2) * others_mhz ? SlowCause::low_clock
                                                     : SlowCause::compute;
}

Exchange exchange_of(const RunData& run) {
  Exchange e{.ranks = ranks_of(run), .clocks = clocks_of(run)};
  if (e.clocks.empty()) {
    return e;
  }
  const auto fewest = std::min_element(e.clocks.begin(), e.clocks.end(), [](const RankClock& a, const RankClock& b) {
    return a.windows.size() < b.windows.size();
  });
  e.fewest_windows = fewest->windows.size();
  e.waits = waits_of(e.clocks);
  e.link = link_traffic(e.clocks, e.ranks);
  e.together = together_of(e.clocks.front());
  if (e.clocks.size() >= 2) {
    e.slowest = slowest_of(e.clocks);
  }
  return e;
}

bool Exchange::measured() const {
  return std::any_of(clocks.begin(), clocks.end(), [](const RankClock& clock) {
    return clock.sum.communication_seconds > 0 || clock.sum.sent_bytes > 0;
  });
}

double Exchange::transfer_rate() const { return link.bytes_per_second * waits.step / std::max(waits.transfer, 1e-9); }

double Exchange::sent_over_planned() const {
  const double planned = clocks.front().setup.planned_sent_bytes;
  return planned > 0 ? clocks.front().mean(&TrainPoint::sent_bytes) / planned : kUnknown;
}

bool Exchange::sent_as_planned() const { return std::fabs(sent_over_planned() - 1) <= 0.01; }

double Exchange::bf16_step() const {
  const double share = bf16_share(clocks.front().setup);
  return share > 0 ? waits.step_with_share(share) : kUnknown;
}

bool Exchange::worth_what_if() const { return waits.exposed_share() >= 0.01 && waits.exposed < waits.step; }

}  // namespace tandem::observe
