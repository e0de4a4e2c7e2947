// Training over links of a known rate: what the metrics say of the network is what went over it.
#include <cmath>
#include <numeric>
#include <sstream>

#include "end_to_end/several_ranks.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// A field of a rank's records of a kind, in order.
std::vector<double> values(const fs::path& run, int rank, const std::string& kind, const std::string& field) {
  std::istringstream lines(read_text(run / "metrics" / (std::to_string(rank) + ".jsonl")));
  std::vector<double> result;
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("\"" + field + "\":");
    if (line.find("\"kind\":\"" + kind + "\"") != std::string::npos && at != std::string::npos) {
      result.push_back(std::strtod(line.c_str() + at + field.size() + 3, nullptr));
    }
  }
  return result;
}

double total(const fs::path& run, int rank, const std::string& kind, const std::string& field) {
  const std::vector<double> all = values(run, rank, kind, field);
  return std::accumulate(all.begin(), all.end(), 0.0);
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

// Two workers on a link on which the communication of a step takes half as long as its computation: nearly all of it
// happens beside the backward pass. What one rank waits for the other is no communication: a step's exposed part is the
// shorter wait of the two.
TEST(Network, CommunicationHidesBehindTheBackwardPass) {
  if (std::getenv("TANDEM_SOAK") == nullptr) {
    GTEST_SKIP() << "a measurement, which needs a quiet machine: set TANDEM_SOAK=1 (make soak)";
  }
  if (const std::string why = Hosts::unavailable(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  constexpr int kSteps = 16;
  const TemporaryDirectory directory;
  make_small_corpus(directory);
  const auto train = [&](const std::string& name, const std::string& rate, const std::string& who) {
    const Hosts hosts(2, rate);
    const Result result = run(launch_arguments(
        who,
        train_arguments(directory, name, kSteps,
                        {"log.every_steps=1", "batch.tokens=3200", "model.width=256", "model.feed_forward=1024",
                         "model.encoder_layers=4", "model.decoder_layers=4", "validation.every_steps=0"}),
        {"--agent", hosts.agent()}));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return directory / name;
  };
  const fs::path fast = train("fast", "", "a,b");
  const double compute = total(fast, 0, "train", "compute_seconds") / kSteps;
  const double bytes = total(fast, 0, "train", "sent_bytes") / kSteps;
  const double communication = compute / 2;
  const fs::path shaped = train("shaped", std::to_string(std::llround(bytes * 8 / communication)) + "bit", "a,b");
  const std::vector<double> first = values(shaped, 0, "train", "communication_seconds");
  const std::vector<double> second = values(shaped, 1, "train", "communication_seconds");
  ASSERT_EQ(first.size(), kSteps);
  ASSERT_EQ(second.size(), kSteps);
  double exposed = 0;
  for (int step = 1; step < kSteps; ++step) {
    exposed += std::min(first[step], second[step]) / (kSteps - 1);
  }
  const double one = total(train("one", "", "a"), 0, "train", "step_seconds") / kSteps;
  const double two = total(shaped, 0, "train", "step_seconds") / kSteps;
  std::printf(
      "compute %.3f s, communication %.3f s (%.1f MB), exposed %.4f s: %.1f %%; efficiency of 2 workers %.1f %%\n",
      compute, communication, bytes / 1e6, exposed, 100 * exposed / communication, 100 * one / two / 2);
  EXPECT_LE(exposed, 0.1 * communication);
}

}  // namespace
}  // namespace tandem::testing
