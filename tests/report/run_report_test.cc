#include "report/run_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "observe/made_run.h"

namespace tandem {

namespace {

RunReport hostile() {
  RunData run = testing::MadeRun{}.make(1);
  RankMetrics& m = run.ranks[0];
  m.samples = {{20000, 0, "<script>alert(1)</script>", "a | b\n\n# not a heading", "[x](javascript:alert(1)) `*_\\"},
               {20000, 1, "\x1b[31mred\x07", "\xff\xfe broken", "</pre>&amp; ``` ![x](y)"}};
  m.events.push_back({20000, 0, "end", "<img src=x onerror=alert(1)>"});
  m.bleu_signature = "<b>";
  run.name = "runs/<i>";
  run.config = "a = 1\n```\n</code><script>\n\x1b[2J";
  return make_report(std::move(run), {}, 0, 0);
}

TEST(RunReport, MarkdownLetsNoMarkupThrough) {
  std::string text = to_markdown(hostile());
  // The config is an indented block, in which nothing is markup.
  const std::string head = text.substr(0, text.find("## Settings"));
  for (const char* bad : {"<script", "<img", "<b>", "<i>", "[x](", "\n# not", "a | b", "```", "</pre>"}) {
    EXPECT_EQ(head.find(bad), std::string::npos) << bad;
  }
  EXPECT_NE(head.find("&lt;script&gt;alert(1)&lt;/script&gt;"), std::string::npos);
  EXPECT_NE(text.find("\n    ```\n    </code><script>\n"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(RunReport, JsonIsSoundAndSafeInsideAPage) {
  const std::string text = to_json(hostile());
  EXPECT_EQ(text.find_first_of("<>&\x1b"), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("version"), 1);
  EXPECT_EQ(json.at("samples").at(0).at("source"), "<script>alert(1)</script>");
  EXPECT_EQ(json.at("verdicts").size(), 6U);
  EXPECT_EQ(json.at("verdicts").at(0).at("label"), "ended");
  EXPECT_EQ(json.at("validations").size(), 20U);
}

TEST(RunReport, TextSendsNoControlCharacters) {
  for (const char c : to_text(hostile())) {
    EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n');
  }
  EXPECT_EQ(printable("a\xc2\x9b"
                      "31m\tb"),
            "a\xEF\xBF\xBD"
            "31m b");
  EXPECT_EQ(printable("Grüße"), "Grüße");
}

TEST(RunReport, NumbersThatAreNotFiniteAreNullInJson) {
  RunData run = testing::MadeRun{}.make(1);
  run.ranks[0].valid[3].bleu = kUnknown;
  run.ranks[0].valid[4].nll = std::numeric_limits<double>::infinity();
  const nlohmann::json json = nlohmann::json::parse(to_json(make_report(run, {}, 0, 0)));
  EXPECT_TRUE(json.at("validations").at(3).at("bleu").is_null());
  EXPECT_TRUE(json.at("validations").at(4).at("nll").is_null());
}

}  // namespace

}  // namespace tandem
