#include <fmt/format.h>

#include "report/forms.h"
#include "report/page_source.h"

namespace tandem::report {

namespace {

std::string assembled(const std::string& data, bool live) {
  using namespace page_source;
  std::string page;
  page.reserve(data.size() + chart_script.size() + page_script.size() + page_style.size() + page_body.size() + 2048);
  page += "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  page += fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n", content_security_policy(live));
  page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  page += "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n";
  page += "<link rel=\"icon\" href=\"data:,\">\n<title>Tandem</title>\n<style>";
  page += page_style;
  page += "</style>\n</head>\n<body>\n";
  page += page_body;
  page += fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n<script>", data);
  page += chart_script;
  page += "</script>\n<script>";
  page += page_script;
  page += "</script>\n</body>\n</html>\n";
  return page;
}

}  // namespace

std::string content_security_policy(bool live) {
  return fmt::format(
      "default-src 'none'; script-src {} {}; style-src {}; img-src data:; base-uri 'none'; form-action 'none'{}",
      page_source::chart_script_hash, page_source::page_script_hash, page_source::page_style_hash,
      live ? "; connect-src 'self'" : "");
}

std::string page_data(std::span<const RunReport> reports) {
  JsonDetail detail{.numbers = 120'000,
                    .points = 2000,
                    .validations = 200,
                    .samples = 120,
                    .events = 40,
                    .text_bytes = 1000,
                    .config_bytes = 1 << 15,
                    .indent = -1};
  std::string data = to_json(reports, detail);
  while (data.size() > kLargestPage * 4 / 5 && detail.numbers > 1) {  // long sentences, or many runs
    detail.numbers /= 4;
    detail.points = std::max<size_t>(50, detail.points / 4);
    detail.validations = std::max<size_t>(20, detail.validations / 2);
    detail.samples /= 2;
    detail.events /= 4;
    detail.text_bytes = std::max<size_t>(100, detail.text_bytes / 2);
    detail.config_bytes /= 4;
    data = to_json(reports, detail);
  }
  return data;
}

std::string to_html(std::span<const RunReport> reports) { return assembled(page_data(reports), false); }

std::string live_page() { return assembled("null", true); }

}  // namespace tandem::report
