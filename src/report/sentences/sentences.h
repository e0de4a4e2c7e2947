// The answers to the questions about a run in words: one sentence each, from the facts and the verdict that follows
// from them. Nothing is decided here.
#pragma once

#include <string>

#include "observe/verdicts/facts.h"

namespace tandem {

std::string how_long_text(const Duration& duration, const Verdict& verdict);
std::string step_time_text(const StepTimes& times, const Verdict& verdict);

std::string trained_enough_text(const Learning& learning, const Verdict& verdict);
std::string overfitting_text(const Learning& learning, const Verdict& verdict);
std::string nonfinite_text(const Finiteness& finiteness, const Verdict& verdict);
std::string learning_rate_text(const RateCourse& course, const Verdict& verdict);

std::string gpu_work_text(const GpuWork& work, const Verdict& verdict);
std::string network_text(const Exchange& exchange, const Verdict& verdict);
std::string step_and_network_text(const Exchange& exchange, const Verdict& verdict);
std::string slow_rank_text(const Exchange& exchange, const Verdict& verdict);

std::string disk_text(const Storage& storage, const Verdict& verdict);
std::string checkpoint_contents_text(const Storage& storage, const Verdict& verdict);
std::string checkpoint_size_text(const Storage& storage, const Verdict& verdict);
std::string training_set_text(const std::optional<PreparedStats>& stats, const Verdict& verdict);

}  // namespace tandem
