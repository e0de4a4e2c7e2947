#include <gtest/gtest.h>

#include "observe/metrics.h"
#include "report/forms.h"
#include "report/made_report.h"
#include "report/text.h"

namespace tandem::report {

namespace {

using testing::hostile_report;
using testing::made_report;

TEST(Readable, MarkdownLetsNoMarkupThrough) {
  const std::string text = to_markdown(hostile_report());
  // The config is an indented block, in which nothing is markup.
  const std::string head = text.substr(0, text.find("## Settings"));
  for (const char* bad : {"<script", "<img", "<b>", "<i>", "[x](", "\n# not", "a | b", "```", "</pre>"}) {
    EXPECT_EQ(head.find(bad), std::string::npos) << bad;
  }
  EXPECT_NE(head.find("&lt;script&gt;alert(1)&lt;/script&gt;"), std::string::npos);
  EXPECT_NE(text.find("\n    ```\n    </code><script>\n"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Readable, TextSendsNoControlCharacters) {
  for (const char c : to_text(hostile_report())) {
    EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n');
  }
  EXPECT_EQ(printable("a\xc2\x9b"
                      "31m\tb"),
            "a\xEF\xBF\xBD"
            "31m b");
  EXPECT_EQ(printable("Grüße"), "Grüße");
}

TEST(Readable, EveryVerdictIsThere) {
  const RunReport report = made_report();
  for (const std::string& text : {to_text(report), to_markdown(report)}) {
    for (const Answer& answer : report.answers) {
      EXPECT_NE(text.find(answer.question), std::string::npos) << answer.question;
    }
  }
}

TEST(Readable, SeveralRunsAreComparedFirst) {
  std::vector<RunReport> reports = {made_report(), made_report({.nll = testing::falling}, 2)};
  reports[0].run.name = "runs/a";
  reports[1].run.name = "runs/b|c";
  const std::string text = to_markdown(reports);
  const size_t table = text.find("# Runs side by side"), first = text.find("# runs/a"), second = text.find("# runs/b");
  ASSERT_NE(table, std::string::npos);
  EXPECT_LT(table, first);
  EXPECT_LT(first, second);
  EXPECT_NE(second, std::string::npos);
  EXPECT_NE(text.find("| runs/b\\|c |"), std::string::npos);
}

TEST(Readable, TextsAreCutBetweenCharacters) {
  EXPECT_EQ(observe::kept_text("abc", 3), "abc");
  EXPECT_EQ(observe::kept_text("ab\xC3\xBC"
                               "d",
                               3),
            "ab...");
}

}  // namespace

}  // namespace tandem::report
