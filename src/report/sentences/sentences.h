// The answers to the questions about a run in words: one sentence each, from the facts and the verdict that follows
// from them. Only words are chosen here; observe/verdicts has every threshold.
#pragma once

#include <string>

#include "observe/verdicts/duration.h"
#include "observe/verdicts/exchange.h"
#include "observe/verdicts/gpu_work.h"
#include "observe/verdicts/learning.h"
#include "observe/verdicts/storage.h"

namespace tandem::report {

std::string how_long_text(const observe::Duration& duration, const observe::Verdict& verdict);
std::string step_time_text(const observe::StepTimes& times, const observe::Verdict& verdict);

std::string trained_enough_text(const observe::Learning& learning, const observe::Verdict& verdict);
std::string overfitting_text(const observe::Learning& learning, const observe::Verdict& verdict);
std::string nonfinite_text(const observe::Finiteness& finiteness, const observe::Verdict& verdict);
std::string learning_rate_text(const observe::RateCourse& course, const observe::Verdict& verdict);

std::string gpu_work_text(const observe::GpuWork& work, const observe::Verdict& verdict);
std::string network_text(const observe::Exchange& exchange, const observe::Verdict& verdict);
std::string step_and_network_text(const observe::Exchange& exchange, const observe::Verdict& verdict);
std::string slow_rank_text(const observe::Exchange& exchange, const observe::Verdict& verdict);

std::string disk_text(const observe::Storage& storage, const observe::Verdict& verdict);
std::string checkpoint_contents_text(const observe::Storage& storage, const observe::Verdict& verdict);
std::string checkpoint_size_text(const observe::Storage& storage, const observe::Verdict& verdict);
std::string training_set_text(const std::optional<observe::PreparedStats>& stats, const observe::Verdict& verdict);

}  // namespace tandem::report
