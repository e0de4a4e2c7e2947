// What a validation of a real run leaves behind.
#include "end_to_end/program.h"
#include "observe/known_fields.h"
#include "observe/read_metrics.h"
#include "observe/run_reader.h"

namespace tandem::testing {
namespace {

TEST(Validation, RecordsBleuWithItsInterval) {
  TemporaryDirectory directory;
  make_small_corpus(directory);
  const Result trained = run(train_arguments(directory, "run", 160, {"validation.every_steps=80"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(trained.err.find(" (μ = "), std::string::npos) << trained.err;
  const observe::RankMetrics metrics = observe::read_rank(directory / "run/metrics/0.jsonl");
  ASSERT_EQ(metrics.valid.size(), 2U);
  for (const observe::ValidPoint& point : metrics.valid) {
    EXPECT_GE(point.bleu_low, 0) << point.step;
    EXPECT_LE(point.bleu_low, point.bleu) << point.step;
    EXPECT_GE(point.bleu_high, point.bleu) << point.step;
  }
  EXPECT_LT(metrics.valid.back().bleu_low, metrics.valid.back().bleu_high);
  const std::string state = read_text(directory / "run/latest/state.json");
  EXPECT_NE(state.find("\"bleu\""), std::string::npos);
  EXPECT_EQ(state.find("bleu_low"), std::string::npos) << "of the record, not of the checkpoint";
  EXPECT_NE(read_text(directory / "run/report.json").find("\"bleu_low\""), std::string::npos);
  for (const observe::Record& record : read_metrics(directory / "run/metrics/0.jsonl").records) {
    for (const auto& [name, value] : record.fields) {
      EXPECT_TRUE(is_known_field(record.kind, name)) << record.kind << " " << name;
    }
  }
}

TEST(Report, NeedsNothingButTheRun) {
  const TemporaryDirectory directory;
  make_small_corpus(directory);
  ASSERT_EQ(run(train_arguments(directory, "run", 2)).exit_code, 0);
  std::filesystem::rename(directory / "run", directory / "copy");
  std::filesystem::remove_all(directory / "data");
  const Result report = run({"report", directory.at("copy")});
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_NE(report.out.find("raw lines a side"), std::string::npos) << report.out;
}

}  // namespace
}  // namespace tandem::testing
