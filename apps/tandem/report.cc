// tandem report: answers questions about a run from its records. Only reads the run's files, so it may run at any time.
#include <filesystem>
#include <memory>

#include "commands.h"
#include "core/error.h"
#include "core/log.h"
#include "report/forms.h"
#include "report/run_report.h"
#include "train/read_report.h"

namespace tandem::cli {

namespace fs = std::filesystem;

namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string data, out, format;
  double price_per_hour = 0;
};

// The directory for the report's files; empty = none.
std::string place_of_files(const ReportArguments& arguments) {
  if (!arguments.out.empty() || !arguments.format.empty()) {
    return arguments.out;
  }
  require(arguments.runs.size() == 1,
          "a report of {} runs needs a directory: give --out DIRECTORY, or --format to print", arguments.runs.size());
  return fs::is_directory(arguments.runs.front()) ? arguments.runs.front() : "";
}

void run_report(const ReportArguments& arguments) {
  require(arguments.data.empty() || fs::exists(fs::path(arguments.data) / "stats.json"),
          "--data {}: there is no stats.json, so it is not a directory made by `tandem prepare`", arguments.data);
  require(arguments.price_per_hour >= 0, "--price-per-hour is {}: give 0 or more", arguments.price_per_hour);
  const std::string out = place_of_files(arguments);
  std::vector<report::RunReport> reports;
  for (const std::string& run : arguments.runs) {
    reports.push_back(train::read_report(run, {.data = arguments.data, .price_per_hour = arguments.price_per_hour}));
    require(reports.back().run.main().last_time() > 0 || fs::exists(fs::path(run) / "lock"),
            "{} holds no record of a run: give a run directory or its metrics file", run);
  }
  if (!out.empty()) {
    report::write_reports(reports, out);
    log::info("wrote {0}/report.html, {0}/report.md and {0}/report.json", out);
  }
  if (arguments.out.empty()) {
    print(arguments.format == "md"     ? report::to_markdown(reports)
          : arguments.format == "json" ? to_json(reports)
                                       : to_text(reports));
  }
}

}  // namespace

void add_report(Program& program) {
  auto arguments = std::make_shared<ReportArguments>();  // shared with the action, which runs after this returns
  program
      .add("report",
           "Answers questions about a run from its records, while it trains, afterwards, or on a copy. Writes "
           "report.html, report.md and report.json into the run directory and prints the answers.")
      .option("run", arguments->runs, "Run directories, or metrics files; several are compared")
      .required()
      .option("--price-per-hour", arguments->price_per_hour, "Price of an hour of all hosts together")
      .option("--data", arguments->data, "Prepared directory; default: the run's copy of its stats.json")
      .option("--format", arguments->format, "Only print: text, md or json")
      .choices({"text", "md", "json"})
      .option("--out", arguments->out, "Write the three files into this directory, and print nothing")
      .example("tandem report runs/en-de --price-per-hour 2.50")
      .run([arguments] { run_report(*arguments); });
}

}  // namespace tandem::cli
