#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <set>
#include <sstream>

#include "report/forms.h"
#include "report/made_report.h"

namespace tandem::report {

namespace {

TEST(Prometheus, EveryLineIsOfTheFormat) {
  std::vector<RunReport> reports = {testing::made_report(), testing::hostile_report()};
  reports[0].run.name = "a \"quoted\" \\ name\nof two lines";
  const std::string name = "[a-zA-Z_:][a-zA-Z0-9_:]*";
  const std::string label = "[a-zA-Z_][a-zA-Z0-9_]*=\"([^\"\\\\\n]|\\\\[\\\\\"n])*\"";
  const std::regex sample("^(" + name + ")\\{" + label + "(," + label +
                          ")*\\} (NaN|[+-]Inf|-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?)$");
  const std::regex comment("^# (HELP|TYPE) (" + name + ") .+$");
  std::istringstream lines(to_prometheus(reports));
  std::set<std::string> typed, samples;
  std::string current;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, comment)) {
      current = match[2];
      typed.insert(current);
    } else {
      ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
      EXPECT_EQ(match[1], current) << "samples of a metric stand together";
      EXPECT_TRUE(samples.insert(line.substr(0, line.rfind(' '))).second) << "twice: " << line;
    }
  }
  EXPECT_TRUE(typed.contains("tandem_step"));
  EXPECT_TRUE(typed.contains("tandem_validation_nll"));
}

TEST(Prometheus, SaysStepsAndVerdicts) {
  const RunReport report = testing::made_report();
  const std::string text = to_prometheus(std::span(&report, 1));
  EXPECT_NE(text.find("tandem_step{run=\"made\"} 20000\n"), std::string::npos);
  EXPECT_NE(text.find("tandem_verdict{run=\"made\",question=\"how_long\",answer=\"silent\""), std::string::npos);
  EXPECT_TRUE(to_prometheus({}).starts_with("# HELP tandem_verdict"));
}

TEST(Prometheus, HasTheFieldsOfTheNewestRecords) {
  const RunReport report = testing::made_report();
  const std::string text = to_prometheus(std::span(&report, 1));
  const auto value = [&](const std::string& name) {
    const size_t at = text.find("\n" + name + "{run=\"made\"} ");
    return at == std::string::npos ? observe::kUnknown : std::stod(text.substr(text.find("} ", at) + 2));
  };
  const observe::TrainPoint& train = report.run.main().train.back();
  const observe::ValidPoint& valid = report.run.main().valid.back();
  EXPECT_EQ(value("tandem_train_nll"), train.nll);
  EXPECT_EQ(value("tandem_learning_rate"), train.learning_rate);
  EXPECT_EQ(value("tandem_step_seconds"), train.step_seconds() / train.steps) << "a mean step";
  EXPECT_EQ(value("tandem_target_tokens"), 2600) << "a step";
  EXPECT_EQ(value("tandem_target_tokens_per_second"), train.target_tokens / train.step_seconds());
  EXPECT_EQ(value("tandem_dead_rows"), 0);
  EXPECT_EQ(value("tandem_elapsed_seconds"), train.elapsed_seconds);
  EXPECT_EQ(value("tandem_validation_nll"), valid.nll);
  EXPECT_EQ(value("tandem_training_sample_nll"), valid.train_nll);
  EXPECT_EQ(value("tandem_bleu"), valid.bleu);
  EXPECT_TRUE(std::isnan(value("tandem_chrf"))) << "not measured";
}

}  // namespace

}  // namespace tandem::report
