#include "report/run_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "core/error.h"
#include "core/file.h"
#include "observe/progress.h"
#include "report/json.h"
#include "report/page.h"
#include "report/readable.h"

namespace tandem::report {

namespace {

std::string utc(double time) {
  constexpr double kYear9999 = 253402300799.0;
  return time > 0 && time <= kYear9999
             ? fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(static_cast<std::time_t>(time)))
             : "not known";
}

}  // namespace

RunReport make_report(observe::RunData run, observe::RunPlan plan, const observe::CheckpointFacts& checkpoint,
                      double now, double price_per_hour) {
  RunReport report{.run = std::move(run), .plan = std::move(plan), .answers = {}, .time = now};
  report.answers = answers_to(observe::facts_of(report.run, report.plan, checkpoint, now, price_per_hour));
  return report;
}

void write_reports(std::span<const RunReport> reports, const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  require(!error, "cannot make the directory {}: {}", directory.string(), error.message());
  write_file(directory / "report.html", to_html(reports));
  write_file(directory / "report.md", to_markdown(reports));
  write_file(directory / "report.json", to_json(reports));
}

std::vector<std::pair<std::string, double>> time_split(const observe::RankMetrics& metrics) {
  const observe::TrainPoint sums = observe::total(metrics.train);
  return {{"compute", sums.compute_seconds},
          {"exposed communication", sums.communication_seconds},
          {"waiting for data", sums.data_seconds},
          {"other", sums.other_seconds},
          {"validation", metrics.validation_seconds()},
          {"checkpoints", sums.checkpoint_seconds}};
}

double steps_in(const observe::RankMetrics& metrics) { return observe::total(metrics.train).steps; }

std::vector<observe::SamplePoint> last_samples(const observe::RankMetrics& metrics) {
  std::vector<observe::SamplePoint> samples;
  for (const observe::SamplePoint& sample : metrics.samples) {
    if (sample.step == metrics.samples.back().step) {
      samples.push_back(sample);
    }
  }
  return samples;
}

std::vector<std::pair<std::string, std::string>> environment_of(const RunReport& report) {
  const observe::RankMetrics& m = report.run.main();
  std::vector<std::pair<std::string, std::string>> facts = {
      {"Report made", utc(report.time)},
      {"Report made by", "tandem " TANDEM_VERSION},
      {"First record", utc(m.train.empty() ? 0 : m.train.front().time)},
      {"Last record", utc(m.last_time())}};
  for (const observe::RankMetrics& rank : report.run.ranks) {
    const observe::SetupPoint setup = observe::setup_of(rank);
    std::string text;
    const auto add = [&](const char* what, const std::string& value) {
      text += value.empty() ? "" : fmt::format("{}{}{}", text.empty() ? "" : ", ", what, value);
    };
    add("host ", setup.host);
    add("", rank.gpu_name.empty() ? setup.device : rank.gpu_name);
    add("", setup.backend);
    add("", setup.precision);
    add("on the wire ", setup.wire);
    add("interface ", setup.interface);
    add("tandem ", setup.version);
    facts.emplace_back(fmt::format("Rank {}", rank.rank), text.empty() ? "says nothing about itself" : text);
  }
  return facts;
}

std::string reading_notes(const observe::RankMetrics& metrics) {
  std::string notes = fmt::format("{} lines of metrics read", grouped(metrics.lines));
  const auto note = [&](int64_t count, const char* what) {
    notes += count > 0 ? fmt::format(", {} {}", grouped(count), what) : "";
  };
  note(metrics.unreadable, "left out as unreadable");
  note(metrics.out_of_order, "left out as out of order");
  note(metrics.superseded, "times back to an earlier step: what came after it then is superseded");
  return notes + ".";
}

}  // namespace tandem::report
