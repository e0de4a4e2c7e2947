#include "report/probe_curves.h"

#include <fmt/format.h>

#include "report/thinned.h"

namespace tandem::report {

namespace {

double by_seconds(const observe::ProbePoint& p) { return p.seconds > 0 ? p.seconds : 1; }
double rate(double amount, const observe::ProbePoint& p) {
  return p.seconds > 0 ? amount / p.seconds : observe::kUnknown;
}

constexpr Curve<observe::ProbePoint> kCurves[] = {
    {"power", [](const observe::ProbePoint& p) { return p.gpu_power_watts; }, by_seconds},
    {"power_limit", [](const observe::ProbePoint& p) { return p.gpu_power_limit_watts; }, by_seconds},
    {"clock", [](const observe::ProbePoint& p) { return p.gpu_sm_clock_mhz; }, by_seconds},
    {"temperature", [](const observe::ProbePoint& p) { return p.gpu_temperature_celsius; }, by_seconds},
    {"utilisation", [](const observe::ProbePoint& p) { return p.gpu_utilisation_percent; }, by_seconds},
    {"gpu_memory", [](const observe::ProbePoint& p) { return p.gpu_memory_used_bytes / 1e9; }, by_seconds},
    {"gpu_memory_total", [](const observe::ProbePoint& p) { return p.gpu_memory_total_bytes / 1e9; }, by_seconds},
    {"sent", [](const observe::ProbePoint& p) { return rate(p.network_sent_bytes, p) / 1e6; }, by_seconds},
    {"received", [](const observe::ProbePoint& p) { return rate(p.network_received_bytes, p) / 1e6; }, by_seconds},
    {"link", [](const observe::ProbePoint& p) { return p.network_link_bits_per_second / 8e6; }, by_seconds},
    {"dropped",
     [](const observe::ProbePoint& p) { return rate(p.network_received_dropped + p.network_sent_dropped, p); },
     by_seconds},
    {"cpu", [](const observe::ProbePoint& p) { return 100 * p.cpu_busy; }, by_seconds},
    {"process_cpu", [](const observe::ProbePoint& p) { return 100 * rate(p.process_cpu_seconds, p) / p.cpu_cores; },
     by_seconds},
    {"memory", [](const observe::ProbePoint& p) { return (p.memory_total_bytes - p.memory_available_bytes) / 1e9; },
     by_seconds},
    {"memory_total", [](const observe::ProbePoint& p) { return p.memory_total_bytes / 1e9; }, by_seconds},
    {"process_memory", [](const observe::ProbePoint& p) { return p.process_memory_bytes / 1e9; }, by_seconds},
    {"disk_free", [](const observe::ProbePoint& p) { return p.disk_free_bytes / 1e9; }, by_seconds},
    {"disk_written", [](const observe::ProbePoint& p) { return rate(p.disk_written_bytes, p) / 1e6; }, by_seconds},
};

struct Place {
  double step = 0, hours = 0;
};

// Where in the training a time lies, between the records of the first rank.
Place place_of(const observe::ProbePoint& probe, const std::vector<observe::TrainPoint>& train) {
  const auto after = std::upper_bound(train.begin(), train.end(), probe.time,
                                      [](double time, const observe::TrainPoint& p) { return time < p.time; });
  if (after == train.begin()) {
    const double begin = train.empty() ? 0 : train.front().time - train.front().elapsed_seconds;
    const double hours = train.empty() ? 0 : (probe.time - begin) / 3600;
    return {static_cast<double>(probe.step), std::max(0.0, hours)};
  }
  const observe::TrainPoint& before = *(after - 1);
  double seconds = probe.time - before.time, share = 0;
  if (after != train.end()) {
    share = after->time > before.time ? seconds / (after->time - before.time) : 0;
    seconds = std::min(seconds, after->elapsed_seconds - before.elapsed_seconds);  // the run may have stood still
  }
  const double steps = after == train.end() ? 0 : static_cast<double>(after->step - before.step);
  const double step = static_cast<double>(before.step) + share * steps;
  return {std::max(step, static_cast<double>(after == train.end() ? probe.step : 0)),
          (before.elapsed_seconds + std::max(0.0, seconds)) / 3600};
}

}  // namespace

Table probe_table(const observe::RankMetrics& metrics, const observe::RankMetrics& main, size_t most_points) {
  Table table{.name = fmt::format("probe {}", metrics.rank), .step = {}, .hours = {}, .columns = {}};
  for_each_group(metrics.probes, most_points, [&](std::span<const observe::ProbePoint> group) {
    const Place place = place_of(group.back(), main.train);
    table.step.push_back(place.step);
    table.hours.push_back(place.hours);
  });
  for (const Curve<observe::ProbePoint>& curve : kCurves) {
    table.columns.push_back(thinned(curve, metrics.probes, most_points));
  }
  return table;
}

std::vector<Chart> probe_charts(const observe::RunData& run) {
  struct Part {
    const char *column, *name;
  };
  const auto chart = [&](const char* key, const char* title, const char* unit, const char* note,
                         const std::vector<Part>& parts) {
    Chart made{.key = key, .title = title, .unit = unit, .note = note, .stacked = false, .lines = {}};
    for (const Part& part : parts) {
      for (const observe::RankMetrics& m : run.ranks) {
        made.lines.push_back({run.ranks.size() > 1 ? fmt::format("{}, rank {}", part.name, m.rank) : part.name,
                              fmt::format("probe {}", m.rank), part.column});
      }
    }
    return made;
  };
  return {
      chart("power", "GPU power", "W", "Work costs power: a GPU that only waits draws a fraction of its limit.",
            {{"power", "power"}, {"power_limit", "limit"}}),
      chart("network", "Network", "MB/s (1 MB/s is 8 Mbit/s)", "The run's interface, against the speed of its link.",
            {{"sent", "sent"}, {"received", "received"}, {"link", "link speed, one way"}}),
      chart("dropped", "Dropped packets", "packets a second", "On the run's interface.", {{"dropped", "dropped"}}),
      chart("utilisation", "GPU \"utilisation\"", "%",
            "Only says that some kernel ran, waiting ones included: 100 % is no proof of work.",
            {{"utilisation", "utilisation"}}),
      chart("clock", "GPU clock", "MHz", "", {{"clock", "SM clock"}}),
      chart("temperature", "GPU temperature", "°C", "", {{"temperature", "temperature"}}),
      chart("gpu_memory", "GPU memory", "GB", "", {{"gpu_memory", "used"}, {"gpu_memory_total", "all there is"}}),
      chart("cpu", "CPU", "% of all cores", "", {{"cpu", "whole machine"}, {"process_cpu", "this run"}}),
      chart("host_memory", "Memory of the machine", "GB", "",
            {{"memory", "used"}, {"process_memory", "by this run"}, {"memory_total", "all there is"}}),
      chart("disk_free", "Free disk", "GB", "Where the run is written.", {{"disk_free", "free"}}),
      chart("disk_written", "Written to disk", "MB/s", "", {{"disk_written", "written"}}),
  };
}

}  // namespace tandem::report
