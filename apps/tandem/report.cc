// tandem report: the answers about a run, from what it measured. Reads files only, so it may be asked at any time.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "commands.h"
#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "observe/metrics.h"
#include "report/run_report.h"
#include "train/config.h"

namespace tandem::cli {

namespace fs = std::filesystem;

namespace {

struct ReportArguments {
  std::string run, data, out, format = "text";
  double price_per_hour = 0;
};

RunPlan plan_of(const TrainConfig& config) {
  const ScheduleConfig schedule = with_defaults(config.schedule, config.model.width, config.stop.max_steps);
  RunPlan plan{.max_steps = config.stop.max_steps,
               .max_epochs = config.stop.max_epochs,
               .max_minutes = config.stop.max_minutes,
               .schedule = "",
               .rate_at = {}};
  if (problems(schedule).empty()) {
    plan.schedule = explain(schedule);
    plan.rate_at = [schedule](int64_t step) { return learning_rate(schedule, step); };
  }
  return plan;
}

RunReport make(const ReportArguments& arguments) {
  RunData run = read_run(arguments.run);
  RunPlan plan;
  std::string data = arguments.data;
  if (!run.config.empty()) {
    try {
      const TrainConfig config = parse_config(run.config, "config.toml");
      plan = plan_of(config);
      data = data.empty() ? config.data : data;
    } catch (const Error& error) {
      log::warning("the report does without the run's config: {}", printable(error.what()));
    }
  }
  if (!data.empty()) {
    run.stats = read_stats(data);
  }
  return make_report(std::move(run), plan, unix_time(), arguments.price_per_hour);
}

void run_report(const ReportArguments& arguments) {
  require(arguments.price_per_hour >= 0, "--price-per-hour is {}: give 0 or more", arguments.price_per_hour);
  const RunReport report = make(arguments);
  if (!arguments.out.empty()) {
    std::error_code error;
    fs::create_directories(arguments.out, error);
    require(!error, "cannot make the directory {}: {}", arguments.out, error.message());
    write_file(fs::path(arguments.out) / "report.md", to_markdown(report));
    write_file(fs::path(arguments.out) / "report.json", to_json(report));
    log::info("wrote {0}/report.md and {0}/report.json", arguments.out);
    return;
  }
  const std::string text = arguments.format == "md"     ? to_markdown(report)
                           : arguments.format == "json" ? to_json(report)
                                                        : to_text(report);
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  require(written, "cannot write the report to standard output");
}

}  // namespace

void add_report(Program& program) {
  auto arguments = std::make_shared<ReportArguments>();  // shared with the action, which runs after this returns
  program
      .add("report", "Answers the questions about a run from what it measured: while it trains, after it, on a copy.")
      .option("run", arguments->run, "Run directory, or a metrics file")
      .required()
      .option("--price-per-hour", arguments->price_per_hour, "What an hour of the machine costs")
      .option("--data", arguments->data, "Prepared directory; default: the config's")
      .option("--format", arguments->format, "What to print: text, md or json")
      .choices({"text", "md", "json"})
      .option("--out", arguments->out, "Write report.md and report.json into this directory instead of printing")
      .example("tandem report runs/en-de --price-per-hour 2.50")
      .run([arguments] { run_report(*arguments); });
}

}  // namespace tandem::cli
