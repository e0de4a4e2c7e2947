// The truth about a run: the answers to the questions about it, and what they rest on.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "observe/run_reader.h"
#include "report/answers.h"

namespace tandem::report {

struct RunReport {
  observe::RunData run;
  observe::RunPlan plan;
  std::vector<Answer> answers;
  double time = 0;  // Unix seconds of the making
};

// All answers that the run's data can answer, in the order of the report. `now` 0 = the time of reading says nothing.
RunReport make_report(observe::RunData run, observe::RunPlan plan, const observe::CheckpointFacts& checkpoint,
                      double now, double price_per_hour);

// Writes report.html, report.md and report.json into the directory, each in one step, so that a reader always finds
// whole ones. Makes the directory if needed.
void write_reports(std::span<const RunReport> reports, const std::filesystem::path& directory);

// Seconds of the whole run by what they went to.
std::vector<std::pair<std::string, double>> time_split(const observe::RankMetrics& metrics);
double steps_in(const observe::RankMetrics& metrics);

// Samples of the last validation.
std::vector<observe::SamplePoint> last_samples(const observe::RankMetrics& metrics);

// Where, with what and of which version the run was made: name and value, for people.
std::vector<std::pair<std::string, std::string>> environment_of(const RunReport& report);

// How much was read, and what was left out: a sentence.
std::string reading_notes(const observe::RankMetrics& metrics);

}  // namespace tandem::report
