#include "report/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace tandem::report {

namespace {

using observe::kUnknown, observe::ProbePoint, observe::RankMetrics, observe::RunData, observe::TrainPoint,
    observe::ValidPoint;

// A curve over points of one kind.
template <class Point>
struct Curve {
  const char* column = nullptr;
  double (*value)(const Point&) = nullptr;
  double (*weight)(const Point&) = nullptr;  // weight in a mean; null: weight_of()
  // Ends of the value's interval, if it has one.
  double (*low)(const Point&) = nullptr;
  double (*high)(const Point&) = nullptr;
};

double weight_of(const TrainPoint& p) { return p.steps; }
double weight_of(const ValidPoint&) { return 1; }
double weight_of(const ProbePoint& p) { return p.seconds > 0 ? p.seconds : 1; }
double by_seconds(const TrainPoint& p) { return p.step_seconds(); }
double by_record(const TrainPoint&) { return 1; }

double a_step(double amount, const TrainPoint& p) { return p.steps > 0 ? amount / p.steps : kUnknown; }
double a_second(double count, const TrainPoint& p) {
  return count > 0 && p.step_seconds() > 0 ? count / p.step_seconds() : kUnknown;
}
double a_second(double amount, const ProbePoint& p) { return p.seconds > 0 ? amount / p.seconds : kUnknown; }
double or_unknown(double amount) { return amount > 0 ? amount : kUnknown; }  // 0 = not recorded

constexpr Curve<TrainPoint> kTrainCurves[] = {
    {"nll", [](const TrainPoint& p) { return p.nll; }, observe::loss_weight},
    {"loss", [](const TrainPoint& p) { return p.loss; }, observe::loss_weight},
    {"accuracy", [](const TrainPoint& p) { return 100 * p.accuracy; }, observe::loss_weight},
    {"learning_rate", [](const TrainPoint& p) { return p.learning_rate; }, by_record},
    {"gradient_norm", [](const TrainPoint& p) { return p.gradient_norm; }, by_record},
    {"source_tokens", [](const TrainPoint& p) { return a_second(p.source_tokens, p); }, by_seconds},
    {"target_tokens", [](const TrainPoint& p) { return a_second(p.target_tokens, p); }, by_seconds},
    {"compute", [](const TrainPoint& p) { return 1e3 * a_step(p.compute_seconds, p); }},
    {"communication", [](const TrainPoint& p) { return 1e3 * a_step(p.communication_seconds, p); }},
    {"data", [](const TrainPoint& p) { return 1e3 * a_step(p.data_seconds, p); }},
    {"other", [](const TrainPoint& p) { return 1e3 * a_step(p.other_seconds, p); }},
    {"validation", [](const TrainPoint& p) { return 1e3 * a_step(p.validation_seconds, p); }},
    {"checkpoint", [](const TrainPoint& p) { return 1e3 * a_step(p.checkpoint_seconds, p); }},
    {"sent", [](const TrainPoint& p) { return or_unknown(a_step(p.sent_bytes, p) / 1e6); }},
    {"received", [](const TrainPoint& p) { return or_unknown(a_step(p.received_bytes, p) / 1e6); }},
    {"flops", [](const TrainPoint& p) { return a_second(p.flops, p) / 1e12; }, by_seconds},
    {"memory", [](const TrainPoint& p) { return p.peak_memory_bytes / 1e9; }, by_record},
};

constexpr Curve<TrainPoint> kRankCurves[] = {
    {"step", [](const TrainPoint& p) { return 1e3 * a_step(p.step_seconds(), p); }},
    {"communication", [](const TrainPoint& p) { return 1e3 * a_step(p.communication_seconds, p); }},
};

constexpr Curve<ValidPoint> kValidCurves[] = {
    {"nll", [](const ValidPoint& p) { return p.nll; }},
    {"train_nll", [](const ValidPoint& p) { return p.train_nll; }},
    {"accuracy", [](const ValidPoint& p) { return 100 * p.accuracy; }},
    {"bleu", [](const ValidPoint& p) { return p.bleu; }, nullptr, [](const ValidPoint& p) { return p.bleu_low; },
     [](const ValidPoint& p) { return p.bleu_high; }},
    {"chrf", [](const ValidPoint& p) { return p.chrf; }},
};

constexpr Curve<ProbePoint> kProbeCurves[] = {
    {"power", [](const ProbePoint& p) { return p.gpu_power_watts; }},
    {"power_limit", [](const ProbePoint& p) { return p.gpu_power_limit_watts; }},
    {"clock", [](const ProbePoint& p) { return p.gpu_sm_clock_mhz; }},
    {"temperature", [](const ProbePoint& p) { return p.gpu_temperature_celsius; }},
    {"utilisation", [](const ProbePoint& p) { return p.gpu_utilisation_percent; }},
    {"gpu_memory", [](const ProbePoint& p) { return p.gpu_memory_used_bytes / 1e9; }},
    {"gpu_memory_total", [](const ProbePoint& p) { return p.gpu_memory_total_bytes / 1e9; }},
    {"sent", [](const ProbePoint& p) { return a_second(p.network_sent_bytes, p) / 1e6; }},
    {"received", [](const ProbePoint& p) { return a_second(p.network_received_bytes, p) / 1e6; }},
    {"link", [](const ProbePoint& p) { return p.network_link_bits_per_second / 8e6; }},
    {"dropped", [](const ProbePoint& p) { return a_second(p.network_received_dropped + p.network_sent_dropped, p); }},
    {"cpu", [](const ProbePoint& p) { return 100 * p.cpu_busy; }},
    {"process_cpu", [](const ProbePoint& p) { return 100 * a_second(p.process_cpu_seconds, p) / p.cpu_cores; }},
    {"memory", [](const ProbePoint& p) { return (p.memory_total_bytes - p.memory_available_bytes) / 1e9; }},
    {"memory_total", [](const ProbePoint& p) { return p.memory_total_bytes / 1e9; }},
    {"process_memory", [](const ProbePoint& p) { return p.process_memory_bytes / 1e9; }},
    {"disk_free", [](const ProbePoint& p) { return p.disk_free_bytes / 1e9; }},
    {"disk_written", [](const ProbePoint& p) { return a_second(p.disk_written_bytes, p) / 1e6; }},
};

struct Place {
  double step = 0, hours = 0;
};

// Where in the training a probe lies: its time is placed between the records of the first rank.
Place place_of(const ProbePoint& probe, const std::vector<TrainPoint>& train) {
  const auto after = std::upper_bound(train.begin(), train.end(), probe.time,
                                      [](double time, const TrainPoint& p) { return time < p.time; });
  if (after == train.begin()) {
    const double begin = train.empty() ? 0 : train.front().time - train.front().elapsed_seconds;
    const double hours = train.empty() ? 0 : (probe.time - begin) / 3600;
    return {static_cast<double>(probe.step), std::max(0.0, hours)};
  }
  const TrainPoint& before = *(after - 1);
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

// Neighbours that become one point of the page.
template <class Point>
std::vector<std::span<const Point>> groups_of(const std::vector<Point>& points, size_t most) {
  const size_t together = std::max<size_t>(1, (points.size() + most - 1) / std::max<size_t>(1, most));
  std::vector<std::span<const Point>> groups;
  for (size_t begin = 0; begin < points.size(); begin += together) {
    groups.push_back(std::span(points).subspan(begin, std::min(together, points.size() - begin)));
  }
  return groups;
}

// Means of the groups; values that are not finite are left out.
template <class Point>
Column column_of(const Curve<Point>& curve, const std::vector<std::span<const Point>>& groups) {
  Column column{.name = curve.column, .mean = {}, .low = {}, .high = {}};
  bool several = false;
  for (const std::span<const Point> group : groups) {
    double sum = 0, weights = 0, low = kUnknown, high = kUnknown;
    for (const Point& point : group) {
      const double value = curve.value(point),
                   weight = curve.weight != nullptr ? curve.weight(point) : weight_of(point);
      if (std::isfinite(value) && weight > 0) {
        sum += value * weight;
        weights += weight;
        low = std::fmin(low, curve.low != nullptr ? std::fmin(curve.low(point), value) : value);
        high = std::fmax(high, curve.high != nullptr ? std::fmax(curve.high(point), value) : value);
      }
    }
    several = several || low < high;
    column.mean.push_back(weights > 0 && std::isfinite(sum) ? sum / weights : kUnknown);
    column.low.push_back(low);
    column.high.push_back(high);
  }
  if (!several) {
    column.low.clear();
    column.high.clear();
  }
  return column;
}

// A point of the page lies at the `place` of the last point in its group.
template <class Point, class PlaceOf>
Table table_of(std::string name, const std::vector<Point>& points, std::span<const Curve<Point>> curves, size_t most,
               const PlaceOf& place) {
  Table table{.name = std::move(name), .step = {}, .hours = {}, .columns = {}};
  const std::vector<std::span<const Point>> groups = groups_of(points, most);
  for (const std::span<const Point> group : groups) {
    const auto [step, hours] = place(group.back());
    table.step.push_back(step);
    table.hours.push_back(hours);
  }
  for (const Curve<Point>& curve : curves) {
    table.columns.push_back(column_of(curve, groups));
  }
  return table;
}

// Adds columns that are not in the train records: the measured peak and the planned rate.
void add_expected(Table& train, const RankMetrics& metrics, const observe::RunPlan& plan) {
  const double peak = observe::setup_of(metrics).peak_flops / 1e12;
  Column peaks{.name = "peak_flops", .mean = {}, .low = {}, .high = {}};
  Column rates{.name = "planned_learning_rate", .mean = {}, .low = {}, .high = {}};
  for (const double step : train.step) {
    peaks.mean.push_back(peak);
    rates.mean.push_back(plan.rate_at ? plan.rate_at(std::max<int64_t>(0, static_cast<int64_t>(step) - 1)) : kUnknown);
  }
  train.columns.push_back(std::move(peaks));
  train.columns.push_back(std::move(rates));
}

// All tables; some columns may have no values.
std::vector<Table> all_tables(const RunData& run, const observe::RunPlan& plan, size_t most) {
  const auto recorded = [](const auto& point) {
    return Place{static_cast<double>(point.step), point.elapsed_seconds / 3600};
  };
  const RankMetrics& main = run.main();
  std::vector<Table> tables{table_of<TrainPoint>("train", main.train, kTrainCurves, most, recorded),
                            table_of<ValidPoint>("valid", main.valid, kValidCurves, most, recorded)};
  add_expected(tables.front(), main, plan);
  for (const RankMetrics& rank : run.ranks) {
    if (run.ranks.size() > 1) {
      tables.push_back(
          table_of<TrainPoint>(fmt::format("train {}", rank.rank), rank.train, kRankCurves, most, recorded));
    }
    // Probes are taken by the clock: they are placed between the steps of the first rank.
    tables.push_back(table_of<ProbePoint>(fmt::format("probe {}", rank.rank), rank.probes, kProbeCurves, most,
                                          [&](const ProbePoint& probe) { return place_of(probe, main.train); }));
  }
  return tables;
}

// All charts; some lines may name columns without values.
std::vector<Chart> all_charts(const RunData& run) {
  std::vector<Chart> charts;
  const auto add = [&](const char* key, const char* title, const char* unit, const char* note,
                       const std::vector<Line>& lines, bool stacked = false) {
    charts.push_back({.key = key, .title = title, .unit = unit, .note = note, .stacked = stacked, .lines = lines});
  };
  struct Part {
    const char *column, *name;
  };
  // Lines from every rank's table of this kind.
  const auto by_rank = [&](const char* kind, const std::vector<Part>& parts) {
    std::vector<Line> lines;
    for (const auto& [column, name] : parts) {
      for (const RankMetrics& m : run.ranks) {
        const std::string rank = fmt::format("rank {}", m.rank);
        lines.push_back({*name == '\0'          ? rank
                         : run.ranks.size() > 1 ? fmt::format("{}, {}", name, rank)
                                                : name,
                         fmt::format("{} {}", kind, m.rank), column});
      }
    }
    return lines;
  };
  add("loss", "Loss", "nats a target token",
      "Validation and training sample are scored alike, without dropout and smoothing. The training curves have "
      "dropout on, so they may lie above.",
      {{"validation NLL", "valid", "nll"},
       {"training sample NLL", "valid", "train_nll"},
       {"training NLL, dropout on", "train", "nll"},
       {"training loss, label-smoothed", "train", "loss"}});
  add("quality", "Translation quality", "points, 0 to 100",
      "Of really decoded text against the raw reference. BLEU's band: where other sentences of the same kind would "
      "put it, 95 %. All validations score the same ones, so a change within the band may be real.",
      {{"BLEU", "valid", "bleu"}, {"chrF", "valid", "chrf"}});
  add("learning_rate", "Learning rate", "", "What was applied, and what the formula says.",
      {{"applied", "train", "learning_rate"}, {"planned", "train", "planned_learning_rate"}});
  add("gradient_norm", "Gradient norm", "", "Before clipping.", {{"gradient norm", "train", "gradient_norm"}});
  add("tokens", "Speed", "tokens a second", "Validations and checkpoints not counted.",
      {{"target tokens", "train", "target_tokens"}, {"source tokens", "train", "source_tokens"}});
  add("step", "Where a step's time goes", "ms a step",
      "Pauses are spread over the steps of the record that counts them.",
      {{"compute", "train", "compute"},
       {"exposed communication", "train", "communication"},
       {"waiting for data", "train", "data"},
       {"other", "train", "other"},
       {"validation", "train", "validation"},
       {"checkpoints", "train", "checkpoint"}},
      true);
  add("flops", "Arithmetic", "TFLOP/s",
      "What the model's products need, over the time of the steps; the peak is what this device was measured to do.",
      {{"achieved", "train", "flops"}, {"measured peak", "train", "peak_flops"}});
  add("bytes", "Exchanged with other ranks", "MB a step", "Of the first rank, as the trainer counts them.",
      {{"sent", "train", "sent"}, {"received", "train", "received"}});
  add("accuracy", "Accuracy of the next piece", "%", "Given the right words so far.",
      {{"validation", "valid", "accuracy"}, {"training, dropout on", "train", "accuracy"}});
  if (run.ranks.size() > 1) {
    add("rank_step", "Step time of each rank", "ms a step", "Without validations and checkpoints.",
        by_rank("train", {{"step", ""}}));
    add("rank_communication", "Exposed communication of each rank", "ms a step",
        "A rank that waits little is one that others wait for.", by_rank("train", {{"communication", ""}}));
  }
  add("memory", "Memory", "GB", "Most that the process has used.", {{"peak", "train", "memory"}});
  add("power", "GPU power", "W", "Work costs power: a GPU that only waits draws a fraction of its limit.",
      by_rank("probe", {{"power", "power"}, {"power_limit", "limit"}}));
  add("network", "Network", "MB/s (1 MB/s is 8 Mbit/s)", "The run's interface, against the speed of its link.",
      by_rank("probe", {{"sent", "sent"}, {"received", "received"}, {"link", "link speed, one way"}}));
  add("dropped", "Dropped packets", "packets a second", "On the run's interface.",
      by_rank("probe", {{"dropped", "dropped"}}));
  add("utilisation", "GPU \"utilisation\"", "%",
      "Only says that some kernel ran, waiting ones included: 100 % is no proof of work.",
      by_rank("probe", {{"utilisation", "utilisation"}}));
  add("clock", "GPU clock", "MHz", "", by_rank("probe", {{"clock", "SM clock"}}));
  add("temperature", "GPU temperature", "°C", "", by_rank("probe", {{"temperature", "temperature"}}));
  add("gpu_memory", "GPU memory", "GB", "",
      by_rank("probe", {{"gpu_memory", "used"}, {"gpu_memory_total", "all there is"}}));
  add("cpu", "CPU", "% of all cores", "", by_rank("probe", {{"cpu", "whole machine"}, {"process_cpu", "this run"}}));
  add("host_memory", "Memory of the machine", "GB", "",
      by_rank("probe", {{"memory", "used"}, {"process_memory", "by this run"}, {"memory_total", "all there is"}}));
  add("disk_free", "Free disk", "GB", "Where the run is written.", by_rank("probe", {{"disk_free", "free"}}));
  add("disk_written", "Written to disk", "MB/s", "", by_rank("probe", {{"disk_written", "written"}}));
  return charts;
}

bool has_values(const Column& column) {
  return std::any_of(column.mean.begin(), column.mean.end(), [](double value) { return std::isfinite(value); });
}

bool is_zero(const Column& column) {
  return std::all_of(column.mean.begin(), column.mean.end(), [](double value) { return !(value != 0); });
}

const Column* find(const Curves& curves, const Line& line) {
  for (const Table& table : curves.tables) {
    for (const Column& column : table.columns) {
      if (table.name == line.table && column.name == line.column) {
        return &column;
      }
    }
  }
  return nullptr;
}

}  // namespace

Curves curves_of(const RunData& run, const observe::RunPlan& plan, size_t most_points) {
  Curves curves{.tables = all_tables(run, plan, most_points), .charts = all_charts(run)};
  for (Table& table : curves.tables) {
    std::erase_if(table.columns, [](const Column& column) { return !has_values(column); });
  }
  std::erase_if(curves.tables, [](const Table& table) { return table.columns.empty(); });
  for (Chart& chart : curves.charts) {
    std::erase_if(chart.lines, [&](const Line& line) {
      const Column* column = find(curves, line);
      return column == nullptr || (chart.stacked && is_zero(*column));  // a part that never took time
    });
  }
  std::erase_if(curves.charts, [](const Chart& chart) { return chart.lines.empty(); });
  return curves;
}

}  // namespace tandem::report
