#include "report/prometheus.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

#include "report/made_report.h"

namespace tandem {

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

}  // namespace

}  // namespace tandem
