// Metrics that were damaged in every way: the report is whole, and nothing of them becomes markup.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "report/forms.h"
#include "temporary_directory.h"

namespace tandem::report {

namespace {

const char* const kLines[] = {
    R"({"kind":"train","step":100,"time":1700000000.5,"loss":3.5,"nll":2.5,"learning_rate":0.001,"compute_seconds":1,"steps_per_second":10})",
    R"({"kind":"valid","step":100,"time":1700000001,"nll":2.1,"train_nll":2,"bleu":20,"chrf":40,"seconds":1})",
    R"({"kind":"sample","step":100,"time":1700000001,"index":0,"source":"</script><script>x","reference":"<!--","translation":"&\u2028"})",
    R"({"kind":"event","step":100,"time":1700000001,"event":"end","details":"<img src=x onerror=y>"})",
    R"({"kind":"probe","step":100,"time":1700000001,"seconds":10,"gpu_power_watts":45,"network_sent_bytes":1e30})",
    R"({"kind":"setup","step":0,"time":1700000000,"host":"<b>","device":"cuda","peak_flops":1e400})",
};
const char* const kPieces[] = {
    "NaN", "-1e308", "1e999", "\"NaN\"", "null", "{", "}", "\"", "</script>", "\xff", "\n", "9223372036854775807", ""};

std::string damaged(std::mt19937_64& random) {
  std::string text;
  for (int line = 0; line < 60; ++line) {
    std::string next = kLines[random() % std::size(kLines)];
    if (const size_t at = next.find("100"); at != std::string::npos) {
      next.replace(at, 3, std::to_string(random() % 3000));
    }
    for (uint64_t change = random() % 4; change > 0; --change) {
      const size_t at = random() % (next.size() + 1);
      next.replace(at, random() % 6, kPieces[random() % std::size(kPieces)]);
    }
    text += next + (random() % 10 == 0 ? "" : "\n");
  }
  return text;
}

TEST(ReportFuzz, DamagedMetricsMakeWholeReports) {
  const testing::TemporaryDirectory directory(testing::memory_directory());
  std::filesystem::create_directories(directory / "metrics");
  const int rounds = std::getenv("TANDEM_SOAK") == nullptr ? 100 : 50'000;
  for (int round = 0; round < rounds; ++round) {
    std::mt19937_64 random(static_cast<uint64_t>(round));
    for (const char* name : {"0.jsonl", "1.jsonl"}) {
      std::ofstream(directory / "metrics" / name, std::ios::binary) << damaged(random);
    }
    const RunReport report = make_report(observe::read_run(directory.path()), {}, {}, 1.7e9, 1);
    const nlohmann::json json = nlohmann::json::parse(to_json(report), nullptr, false);
    ASSERT_TRUE(json.is_object()) << "round " << round;
    const std::string page = to_html(std::span(&report, 1));
    const std::string data = page_data(std::span(&report, 1));
    ASSERT_EQ(data.find_first_of("<>&"), std::string::npos) << "round " << round;
    ASSERT_LT(page.size(), kLargestPage);
    ASSERT_FALSE(to_markdown(report).empty());
    ASSERT_FALSE(to_prometheus(std::span(&report, 1)).empty());
  }
}

}  // namespace

}  // namespace tandem::report
