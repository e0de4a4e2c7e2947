#include "observe/verdicts/traffic.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace tandem {

namespace {

const RankMetrics* metrics_of(const RunData& run, int rank) {
  const auto found = std::find_if(run.ranks.begin(), run.ranks.end(),
                                  [&](const RankMetrics& metrics) { return metrics.rank == rank; });
  return found == run.ranks.end() ? nullptr : &*found;
}

double node_of(const RankClock& clock) { return std::isnan(clock.setup.node) ? -1 - clock.rank : clock.setup.node; }

// Ranks by node; without setup records every rank is taken to have its own.
std::map<double, int> ranks_by_node(const std::vector<RankClock>& clocks) {
  std::map<double, int> nodes;
  for (const RankClock& clock : clocks) {
    ++nodes[node_of(clock)];
  }
  return nodes;
}

double payload_over_planned(const RankClock& clock, const ProbePoint& probe) {
  const double payload = probe.network_sent_bytes - kHeaderBytes * probe.network_sent_packets;
  const double per_step = payload / probe.seconds * clock.wall() / clock.steps;
  return clock.setup.planned_sent_bytes > 0 ? per_step / clock.setup.planned_sent_bytes : kUnknown;
}

}  // namespace

LinkTraffic link_traffic(const RunData& run, const std::vector<RankClock>& clocks) {
  LinkTraffic link;
  const std::map<double, int> nodes = ranks_by_node(clocks);
  const bool alone = nodes.size() == clocks.size();
  link.one_host = nodes.size() == 1 && ranks_of(run) == static_cast<int>(clocks.size());
  double counted = kUnknown;
  for (const RankClock& clock : clocks) {
    const double own = std::max(clock.sent, clock.received) / clock.step;
    counted = alone && !(counted > own) ? own : counted;
    const RankMetrics* metrics = metrics_of(run, clock.rank);
    const ProbePoint probe = metrics == nullptr ? ProbePoint{} : probed(*metrics);
    link.dropped += std::isnan(probe.network_sent_dropped) ? 0 : probe.network_sent_dropped;
    link.dropped += std::isnan(probe.network_received_dropped) ? 0 : probe.network_received_dropped;
    if (!(probe.seconds > 0) || std::isnan(probe.network_sent_bytes) || std::isnan(probe.network_received_bytes)) {
      continue;
    }
    // Nothing is exchanged during pauses.
    const double stretched = clock.wall() / (clock.step * clock.steps);
    const double rate = std::max(probe.network_sent_bytes, probe.network_received_bytes) / probe.seconds * stretched;
    if (!(link.bytes_per_second >= rate)) {
      link.bytes_per_second = rate;
      link.with_headers = true;
      link.ranks = nodes.at(node_of(clock));
      link.stated_bits = probe.network_link_bits_per_second;
    }
    if (alone && std::isnan(link.payload_over_planned)) {
      link.payload_over_planned = payload_over_planned(clock, probe);
    }
  }
  if (std::isnan(link.bytes_per_second)) {
    link.bytes_per_second = counted;
  }
  return link;
}

}  // namespace tandem
