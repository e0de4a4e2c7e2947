// A run of a million steps, each with a record.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "observe/probes/host_probes.h"
#include "report/run_report.h"
#include "temporary_directory.h"

namespace tandem::report {

namespace {

constexpr int64_t kSteps = 1'000'000;

void write_metrics(const std::filesystem::path& path) {
  std::ofstream out(path, std::ios::binary);
  for (int64_t step = 1; step <= kSteps; ++step) {
    const double time = 1.7e9 + 0.1 * static_cast<double>(step), nll = step % 1000 == 500 ? 9.0 : 2.0;
    out << fmt::format(
        "{{\"kind\":\"train\",\"step\":{},\"time\":{},\"loss\":{},\"nll\":{},\"accuracy\":0.51,\"learning_rate\":0."
        "0005,"
        "\"gradient_norm\":0.41,\"epoch\":1.5,\"steps_per_second\":10,\"source_tokens\":25000,\"target_tokens\":25000,"
        "\"pairs\":900,\"compute_seconds\":0.09,\"data_seconds\":0.01,\"validation_seconds\":0,\"checkpoint_seconds\":"
        "0,"
        "\"skipped_steps\":0,\"elapsed_seconds\":{},\"peak_memory_bytes\":4000000000}}\n",
        step, time, nll + 1, nll, 0.1 * static_cast<double>(step));
    if (step % 5000 == 0) {
      out << fmt::format("{{\"kind\":\"valid\",\"step\":{},\"time\":{},\"nll\":1.9,\"train_nll\":1.8,\"bleu\":30}}\n",
                         step, time);
    }
  }
}

TEST(MillionSteps, TheReportTakesSecondsAndLittleMemory) {
  if (std::getenv("TANDEM_SOAK") == nullptr) {
    GTEST_SKIP() << "400 MB of metrics: set TANDEM_SOAK=1";
  }
  const testing::TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "metrics");
  write_metrics(directory / "metrics" / "0.jsonl");
  const auto begin = std::chrono::steady_clock::now();
  const RunReport report = make_report(observe::read_run(directory.path()), {}, {}, 0, 0);
  write_reports(std::span(&report, 1), directory.path());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  fmt::print("{} steps: {:.2f} s, {} MB at most\n", kSteps, seconds.count(), observe::peak_memory() / 1'000'000);
  EXPECT_EQ(report.run.main().last_step(), kSteps);
  EXPECT_LT(seconds.count(), 5);
  EXPECT_LT(observe::peak_memory(), 500'000'000);
  EXPECT_LT(std::filesystem::file_size(directory / "report.html"), 2'000'000U);
}

}  // namespace

}  // namespace tandem::report
