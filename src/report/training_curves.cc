#include "report/training_curves.h"

#include <fmt/format.h>

#include "report/thinned.h"

namespace tandem::report {

namespace {

double by_steps(const observe::TrainPoint& p) { return p.steps; }
double by_seconds(const observe::TrainPoint& p) { return p.step_seconds(); }
double by_record(const observe::TrainPoint&) { return 1; }
double by_validation(const observe::ValidPoint&) { return 1; }
double a_step(double amount, const observe::TrainPoint& p) {
  return p.steps > 0 ? amount / p.steps : observe::kUnknown;
}
double a_second(double count, const observe::TrainPoint& p) {
  return count > 0 && p.step_seconds() > 0 ? count / p.step_seconds() : observe::kUnknown;
}
double or_unknown(double amount) { return amount > 0 ? amount : observe::kUnknown; }  // 0 = not recorded

constexpr Curve<observe::TrainPoint> kTrainCurves[] = {
    {"nll", [](const observe::TrainPoint& p) { return p.nll; }, observe::loss_weight},
    {"loss", [](const observe::TrainPoint& p) { return p.loss; }, observe::loss_weight},
    {"accuracy", [](const observe::TrainPoint& p) { return 100 * p.accuracy; }, observe::loss_weight},
    {"learning_rate", [](const observe::TrainPoint& p) { return p.learning_rate; }, by_record},
    {"gradient_norm", [](const observe::TrainPoint& p) { return p.gradient_norm; }, by_record},
    {"source_tokens", [](const observe::TrainPoint& p) { return a_second(p.source_tokens, p); }, by_seconds},
    {"target_tokens", [](const observe::TrainPoint& p) { return a_second(p.target_tokens, p); }, by_seconds},
    {"compute", [](const observe::TrainPoint& p) { return 1e3 * a_step(p.compute_seconds, p); }, by_steps},
    {"communication", [](const observe::TrainPoint& p) { return 1e3 * a_step(p.communication_seconds, p); }, by_steps},
    {"data", [](const observe::TrainPoint& p) { return 1e3 * a_step(p.data_seconds, p); }, by_steps},
    {"other", [](const observe::TrainPoint& p) { return 1e3 * a_step(p.other_seconds, p); }, by_steps},
    {"validation", [](const observe::TrainPoint& p) { return 1e3 * a_step(p.validation_seconds, p); }, by_steps},
    {"checkpoint", [](const observe::TrainPoint& p) { return 1e3 * a_step(p.checkpoint_seconds, p); }, by_steps},
    {"sent", [](const observe::TrainPoint& p) { return or_unknown(a_step(p.sent_bytes, p) / 1e6); }, by_steps},
    {"received", [](const observe::TrainPoint& p) { return or_unknown(a_step(p.received_bytes, p) / 1e6); }, by_steps},
    {"flops", [](const observe::TrainPoint& p) { return a_second(p.flops, p) / 1e12; }, by_seconds},
    {"memory", [](const observe::TrainPoint& p) { return p.peak_memory_bytes / 1e9; }, by_record},
};

constexpr Curve<observe::TrainPoint> kRankCurves[] = {
    {"step", [](const observe::TrainPoint& p) { return 1e3 * a_step(p.step_seconds(), p); }, by_steps},
    {"communication", [](const observe::TrainPoint& p) { return 1e3 * a_step(p.communication_seconds, p); }, by_steps},
};

constexpr Curve<observe::ValidPoint> kValidCurves[] = {
    {"nll", [](const observe::ValidPoint& p) { return p.nll; }, by_validation},
    {"train_nll", [](const observe::ValidPoint& p) { return p.train_nll; }, by_validation},
    {"accuracy", [](const observe::ValidPoint& p) { return 100 * p.accuracy; }, by_validation},
    {"bleu", [](const observe::ValidPoint& p) { return p.bleu; }, by_validation,
     [](const observe::ValidPoint& p) { return p.bleu_low; }, [](const observe::ValidPoint& p) { return p.bleu_high; }},
    {"chrf", [](const observe::ValidPoint& p) { return p.chrf; }, by_validation},
};

template <class Point>
Table table_of(std::string name, const std::vector<Point>& points, std::span<const Curve<Point>> curves, size_t most) {
  Table table{.name = std::move(name), .step = {}, .hours = {}, .columns = {}};
  for_each_group(points, most, [&](std::span<const Point> group) {
    table.step.push_back(static_cast<double>(group.back().step));
    table.hours.push_back(group.back().elapsed_seconds / 3600);
  });
  for (const Curve<Point>& curve : curves) {
    table.columns.push_back(thinned(curve, points, most));
  }
  return table;
}

void add_level(Table& table, const char* name, double level) {
  if (std::isfinite(level)) {
    table.columns.push_back(
        {.name = name, .mean = std::vector<double>(table.step.size(), level), .low = {}, .high = {}});
  }
}

std::vector<Line> lines_of_ranks(const observe::RunData& run, const char* column) {
  std::vector<Line> lines;
  for (const observe::RankMetrics& m : run.ranks) {
    lines.push_back({fmt::format("rank {}", m.rank), fmt::format("train {}", m.rank), column});
  }
  return lines;
}

}  // namespace

Table train_table(const observe::RankMetrics& metrics, const observe::RunPlan& plan, size_t most_points) {
  Table table = table_of<observe::TrainPoint>("train", metrics.train, kTrainCurves, most_points);
  add_level(table, "peak_flops", observe::setup_of(metrics).peak_flops / 1e12);
  if (plan.rate_at) {
    Column planned{.name = "planned_learning_rate", .mean = {}, .low = {}, .high = {}};
    for (const double step : table.step) {
      planned.mean.push_back(plan.rate_at(std::max<int64_t>(0, static_cast<int64_t>(step) - 1)));
    }
    table.columns.push_back(std::move(planned));
  }
  return table;
}

Table rank_table(const observe::RankMetrics& metrics, size_t most_points) {
  return table_of<observe::TrainPoint>(fmt::format("train {}", metrics.rank), metrics.train, kRankCurves, most_points);
}

Table valid_table(const observe::RankMetrics& metrics, size_t most_points) {
  return table_of<observe::ValidPoint>("valid", metrics.valid, kValidCurves, most_points);
}

std::vector<Chart> training_charts(const observe::RunData& run) {
  std::vector<Chart> charts = {
      {"loss",
       "Loss",
       "nats a target token",
       "Validation and training sample are scored alike, without dropout and smoothing. The training curves have "
       "dropout on, so they may lie above.",
       false,
       {{"validation NLL", "valid", "nll"},
        {"training sample NLL", "valid", "train_nll"},
        {"training NLL, dropout on", "train", "nll"},
        {"training loss, label-smoothed", "train", "loss"}}},
      {"quality",
       "Translation quality",
       "points, 0 to 100",
       "Of really decoded text against the raw reference. BLEU's band: where other sentences of the same kind would "
       "put "
       "it, 95 %. All validations score the same ones, so a change within the band may be real.",
       false,
       {{"BLEU", "valid", "bleu"}, {"chrF", "valid", "chrf"}}},
      {"learning_rate",
       "Learning rate",
       "",
       "What was applied, and what the formula says.",
       false,
       {{"applied", "train", "learning_rate"}, {"planned", "train", "planned_learning_rate"}}},
      {"gradient_norm", "Gradient norm", "", "Before clipping.", false, {{"gradient norm", "train", "gradient_norm"}}},
      {"tokens",
       "Speed",
       "tokens a second",
       "Validations and checkpoints not counted.",
       false,
       {{"target tokens", "train", "target_tokens"}, {"source tokens", "train", "source_tokens"}}},
      {"step",
       "Where a step's time goes",
       "ms a step",
       "Pauses are spread over the steps of the record that counts them.",
       true,
       {{"compute", "train", "compute"},
        {"exposed communication", "train", "communication"},
        {"waiting for data", "train", "data"},
        {"other", "train", "other"},
        {"validation", "train", "validation"},
        {"checkpoints", "train", "checkpoint"}}},
      {"flops",
       "Arithmetic",
       "TFLOP/s",
       "What the model's products need, over the time of the steps; the peak is what this device was measured to do.",
       false,
       {{"achieved", "train", "flops"}, {"measured peak", "train", "peak_flops"}}},
      {"bytes",
       "Exchanged with other ranks",
       "MB a step",
       "Of the first rank, as the trainer counts them.",
       false,
       {{"sent", "train", "sent"}, {"received", "train", "received"}}},
      {"accuracy",
       "Accuracy of the next piece",
       "%",
       "Given the right words so far.",
       false,
       {{"validation", "valid", "accuracy"}, {"training, dropout on", "train", "accuracy"}}},
  };
  if (run.ranks.size() > 1) {
    charts.push_back({"rank_step", "Step time of each rank", "ms a step", "Without validations and checkpoints.", false,
                      lines_of_ranks(run, "step")});
    charts.push_back({"rank_communication", "Exposed communication of each rank", "ms a step",
                      "A rank that waits little is one that others wait for.", false,
                      lines_of_ranks(run, "communication")});
  }
  charts.push_back({"memory", "Memory", "GB", "Most that the process has used.", false, {{"peak", "train", "memory"}}});
  return charts;
}

}  // namespace tandem::report
