#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>

#include "report/forms.h"
#include "report/made_report.h"
#include "report/page_source.h"

namespace tandem::report {

namespace {

using testing::hostile_report;
using testing::made_report;

std::string html(const RunReport& report) { return to_html(std::span(&report, 1)); }

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) {
    ++found;
  }
  return found;
}

std::string data_of(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  return page.substr(from, page.find("</script>", from) - from);
}

TEST(Page, IsOneFileThatLoadsNothing) {
  const std::string page = html(made_report());
  EXPECT_LT(page.size(), kLargestPage);
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
  std::string own = page;  // dygraphs makes images of data for parts that are not used here
  own.replace(own.find(page_source::chart_script), page_source::chart_script.size(), "");
  for (const char* loads : {"src=\"", "src='", "@import", "url(", "<iframe", "<object", "<embed", "sourceMappingURL"}) {
    EXPECT_EQ(count(own, loads), 0U) << loads;
  }
  EXPECT_EQ(count(page, "<link"), 1U);
  EXPECT_EQ(count(page, "<link rel=\"icon\" href=\"data:,\">"), 1U);
  EXPECT_EQ(count(page, "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-"),
            1U);
  EXPECT_EQ(content_security_policy(false).find("connect-src"), std::string::npos);
  EXPECT_EQ(content_security_policy(false).find("unsafe"), std::string::npos);
}

TEST(Page, HasThreeScriptsWhateverTheTextsSay) {
  for (const RunReport& report : {made_report(), hostile_report()}) {
    const std::string page = html(report);
    EXPECT_EQ(count(page, "<script"), 3U);
    EXPECT_EQ(count(page, "</script>"), 3U);
    EXPECT_EQ(count(page, "<!--"), 0U);
    EXPECT_EQ(count(page, "onerror=\""), 0U);
    EXPECT_EQ(count(page, "<img"), 0U);
  }
}

TEST(Page, TheDataInsideIsTheReport) {
  const nlohmann::json data = nlohmann::json::parse(data_of(html(hostile_report())));
  EXPECT_EQ(data.at("runs").at(0).at("samples").at(0).at("source"), "<script>alert(1)</script>");
  EXPECT_EQ(data.at("runs").at(0).at("run"), "runs/<i>");
}

TEST(Page, StaysSmallHoweverMuchThereIs) {
  RunReport report = made_report({.validations = 300, .every = 100});
  const std::string sentence(4096, 'x');
  for (int i = 0; i < 256; ++i) {
    report.run.ranks[0].samples.push_back({i, 0, sentence, sentence, sentence});
    report.run.ranks[0].events.push_back({i, 0, "skipped", sentence});
  }
  report.run.config = std::string(1 << 20, '<');
  EXPECT_LT(html(report).size(), kLargestPage);
  const std::vector<RunReport> many(20, report);
  EXPECT_LT(to_html(many).size(), kLargestPage);
}

TEST(Page, TheLivePageHasNoDataAndMayAskItsServer) {
  const std::string page = live_page();
  EXPECT_EQ(data_of(page), "null");
  EXPECT_NE(page.find("connect-src 'self'"), std::string::npos);
}

TEST(Page, SourcesOfThePageBuildNoMarkupFromText) {
  const std::string script(page_source::page_script);
  for (const char* markup :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"}) {
    EXPECT_EQ(count(script, markup), 0U) << markup;
  }
}

}  // namespace

}  // namespace tandem::report
