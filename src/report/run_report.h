// The report of a run: answers to questions about it, and the data that they rest on.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "observe/run_reader.h"
#include "observe/verdicts/storage.h"

namespace tandem::report {

struct Answer {
  std::string key;       // "how_long"
  std::string question;  // "How long does it take?"
  observe::Verdict verdict;
  std::string text;  // one sentence
};

struct RunReport {
  observe::RunData run;
  observe::RunPlan plan;
  std::vector<Answer> answers;
  bool ended = false;
  double time = 0;  // Unix seconds when it was made
};

// Answers every question, in the order of the report. `now`: Unix seconds, or 0 if the time of reading means nothing (a
// copy). `price_per_hour` 0 = not given.
RunReport make_report(observe::RunData run, observe::RunPlan plan, const observe::CheckpointFacts& checkpoint,
                      double now, double price_per_hour);

// Writes report.html, report.md and report.json into the directory, each atomically, so that a reader always finds
// whole ones. Makes the directory if needed.
void write_reports(std::span<const RunReport> reports, const std::filesystem::path& directory);

// Seconds of the whole run, by activity.
std::vector<std::pair<std::string, double>> time_split(const observe::RankMetrics& metrics);
double steps_in(const observe::RankMetrics& metrics);

// At most `most` (1 or more) validations, evenly chosen; the last is one of them.
std::vector<observe::ValidPoint> some_validations(const observe::RankMetrics& metrics, size_t most);

// Samples of the last validation.
std::vector<observe::SamplePoint> last_samples(const observe::RankMetrics& metrics);

// Hosts, devices, precision and versions of the run, as names and values for people.
std::vector<std::pair<std::string, std::string>> environment_of(const RunReport& report);

// A sentence on how much was read and what was left out.
std::string reading_notes(const observe::RankMetrics& metrics);

}  // namespace tandem::report
