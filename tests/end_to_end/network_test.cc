// Training over links of a known rate: what the metrics say of the network is what went over it.
#include <sstream>

#include "end_to_end/team.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// The sum of a field over a rank's records of a kind.
double total(const fs::path& run, int rank, const std::string& kind, const std::string& field) {
  std::istringstream lines(read_text(run / "metrics" / (std::to_string(rank) + ".jsonl")));
  double sum = 0;
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("\"" + field + "\":");
    if (line.find("\"kind\":\"" + kind + "\"") != std::string::npos && at != std::string::npos) {
      sum += std::strtod(line.c_str() + at + field.size() + 3, nullptr);
    }
  }
  return sum;
}

TEST(Network, BytesAndVerdictAreTrue) {
  if (const std::string why = Hosts::unavailable(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  constexpr double kHeaders = 66;  // of a packet, as docs/formats.md states
  constexpr int kSteps = 40;
  const TemporaryDirectory directory;
  make_small_corpus(directory);
  for (const std::string rate : {"100mbit", "1gbit"}) {
    const Hosts hosts(2, rate);
    const Result result = run(launch_arguments(
        "a,b",
        train_arguments(directory, rate, kSteps,
                        {"log.every_steps=4", "log.probe_seconds=0.5", "model.width=128", "model.feed_forward=512",
                         "model.encoder_layers=2", "model.decoder_layers=2"}),
        {"--agent", hosts.agent()}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const fs::path path = directory / rate;
    for (int rank = 0; rank < 2; ++rank) {
      const double sent = total(path, rank, "train", "sent_bytes");
      const double planned = total(path, rank, "setup", "planned_sent_bytes") * kSteps;
      const double interface = total(path, rank, "probe", "network_sent_bytes") -
                               kHeaders * total(path, rank, "probe", "network_sent_packets");
      std::printf("%s, rank %d: %.0f bytes sent, plan %+.3f %%, interface %+.3f %%\n", rate.c_str(), rank, sent,
                  100 * (planned / sent - 1), 100 * (interface / sent - 1));
      EXPECT_NEAR(planned / sent, 1, 0.01);
      EXPECT_NEAR(interface / sent, 1, 0.03);
    }
    if (rate == "100mbit") {
      const Result report = run({"report", path.string()});
      EXPECT_EQ(report.exit_code, 0) << report.err;
      EXPECT_NE(report.out.find("Yes: waiting for the network takes"), std::string::npos) << report.out;
      EXPECT_NE(report.out.find("no more than a 100 Mbit port"), std::string::npos) << report.out;
    }
  }
}

}  // namespace
}  // namespace tandem::testing
