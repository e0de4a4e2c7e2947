#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/forms.h"
#include "report/made_report.h"

namespace tandem::report {

namespace {

using nlohmann::json;
using testing::hostile_report;
using testing::made_report;

TEST(ReportJson, HasWhatTheSchemaSays) {
  const RunReport report = made_report();
  const json all = json::parse(to_json(report));
  EXPECT_EQ(all.at("format"), "tandem report");
  EXPECT_EQ(all.at("version"), 2);
  ASSERT_EQ(all.at("runs").size(), 1U);
  const json& run = all.at("runs").at(0);
  EXPECT_EQ(run.at("run"), "made");
  EXPECT_EQ(run.at("step"), 20000);
  EXPECT_EQ(run.at("verdicts").size(), report.answers.size());
  EXPECT_EQ(run.at("verdicts").at(0).at("label"), "silent");
  EXPECT_EQ(run.at("validations").size(), 20U);
  EXPECT_EQ(run.at("reading").at("ranks"), 1);
  for (const char* key : {"samples", "events", "environment", "config", "bleu_signature", "seconds", "steps"}) {
    EXPECT_TRUE(run.contains(key)) << key;
  }
}

TEST(ReportJson, EveryLineOfEveryChartHasItsColumn) {
  const json run = json::parse(to_json(made_report())).at("runs").at(0);
  EXPECT_GE(run.at("charts").size(), 5U);
  for (const json& chart : run.at("charts")) {
    for (const json& line : chart.at("lines")) {
      const json& table = run.at("tables").at(line.at("table").get<std::string>());
      const json& column = table.at("columns").at(line.at("column").get<std::string>());
      EXPECT_EQ(column.at("mean").size(), table.at("step").size()) << chart.at("key") << " " << line.at("name");
      EXPECT_EQ(table.at("hours").size(), table.at("step").size());
    }
  }
}

TEST(ReportJson, IsSoundAndSafeInsideAPage) {
  const std::string text = to_json(hostile_report());
  EXPECT_EQ(text.find_first_of("<>&\x1b"), std::string::npos);
  EXPECT_EQ(text.find("\xE2\x80\xA8"), std::string::npos);
  EXPECT_EQ(text.find("\xE2\x80\xA9"), std::string::npos);
  const json run = json::parse(text).at("runs").at(0);
  EXPECT_EQ(run.at("samples").at(0).at("source"), "<script>alert(1)</script>");
  EXPECT_EQ(run.at("samples").at(2).at("translation"), "\xE2\x80\xA8\xE2\x80\xA9");
}

TEST(ReportJson, NumbersThatAreNotFiniteAreNull) {
  const json run = json::parse(to_json(hostile_report())).at("runs").at(0);
  EXPECT_TRUE(run.at("validations").at(3).at("bleu").is_null());
  EXPECT_TRUE(run.at("validations").at(4).at("nll").is_null());
  EXPECT_EQ(run.at("validations").at(2).at("nll"), 1e300);
  EXPECT_TRUE(run.at("tables").at("train").at("columns").at("nll").at("mean").at(0).is_number());
}

TEST(ReportJson, SeveralRunsShareTheNumbers) {
  const std::vector<RunReport> reports = {made_report(), made_report({}, 2), made_report({}, 3)};
  const json all = json::parse(to_json(reports, {.numbers = 3000}));
  ASSERT_EQ(all.at("runs").size(), 3U);
  EXPECT_LT(all.at("runs").at(0).at("tables").at("train").at("step").size(), 40U);
}

}  // namespace

}  // namespace tandem::report
