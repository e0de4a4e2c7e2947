// The queue of messages beside a step, by cases whose answer is plain.
#include "preflight/forecast.h"

#include <gtest/gtest.h>

#include "preflight/prediction.h"

namespace tandem::preflight {
namespace {

// Forward 1 s, backward 2 s with a message of 10 MB at 1.5, 2 and 3 s, update 0.5 s.
StepTimeline step_of_three() {
  StepTimeline step;
  for (const double ready : {1.5, 2.0, 3.0}) {
    step.messages.push_back({.ready = ready, .bytes = 10e6, .gradients = true});
  }
  step.backward_end = 3;
  step.update = 0.5;
  return step;
}

NetworkModel network_at(double rate, double message_seconds = 0, double lost_per_byte = 0) {
  return {message_seconds, rate, rate, lost_per_byte};
}

TEST(Forecast, AFastNetworkShowsOnlyTheLastMessage) {
  const Forecast f = forecast(step_of_three(), network_at(100e6));  // 0.1 s each
  EXPECT_NEAR(f.compute, 3.5, 1e-12);
  EXPECT_NEAR(f.communication, 0.3, 1e-12);
  EXPECT_NEAR(f.exposed, 0.1, 1e-12);
  EXPECT_NEAR(f.step, 3.6, 1e-12);
}

TEST(Forecast, ASlowNetworkIsAQueue) {
  const Forecast f = forecast(step_of_three(), network_at(5e6));  // 2 s each, the first from 1.5 s on
  EXPECT_NEAR(f.step, 1.5 + 6 + 0.5, 1e-12);
  EXPECT_NEAR(f.exposed, 4.5, 1e-12);
}

TEST(Forecast, EveryMessageHasItsCost) {
  const Forecast f = forecast(step_of_three(), network_at(100e6, 1.9));  // 2 s each again
  EXPECT_NEAR(f.step, 8, 1e-12);
}

TEST(Forecast, AnInfiniteNetworkCostsNothing) {
  const Forecast f = forecast(step_of_three(), infinitely_fast());
  EXPECT_NEAR(f.step, 3.5, 1e-12);
  EXPECT_EQ(f.exposed, 0);
}

TEST(Forecast, SharedCoresSlowComputingDown) {
  // 0.5 s a message, half of which computing loses: messages at 1.5 and 2 s cost 0.25 s each.
  const Forecast f = forecast(step_of_three(), network_at(20e6, 0, 0.25 / 10e6));
  EXPECT_NEAR(f.step, 3.5 + 2 * 0.25 + 0.5, 1e-12);
}

TEST(Forecast, WhatTheUpdateSendsIsExposed) {
  StepTimeline step = step_of_three();
  step.messages.push_back({.ready = 3.1, .bytes = 20e6, .after_join = true});
  EXPECT_NEAR(forecast(step, network_at(100e6)).step, 3.8, 1e-12);
}

TEST(Forecast, Changes) {
  EXPECT_NEAR(forecast(with_gradients({step_of_three()}, 0.5), network_at(5e6)).step, 1.5 + 3 + 0.5, 1e-12);
  const std::vector<StepTimeline> twice = with_micro_batches({step_of_three()}, 2);
  EXPECT_NEAR(forecast(twice, infinitely_fast()).step, 6.5, 1e-12);
  EXPECT_NEAR(forecast(twice, network_at(5e6)).step, 3 + 8, 1e-12);
  EXPECT_NEAR(forecast(step_of_three(), at_rate(network_at(5e6), 20)).step, 3.6, 1e-12);
}

TEST(Forecast, AMessageWaitsForTheLastRank) {
  StepTimeline late = step_of_three();
  late.messages[1].ready = 2.7;
  late.update = 0.6;
  const StepTimeline all = slowest({step_of_three(), late});
  EXPECT_EQ(all.messages[1].ready, 2.7);
  EXPECT_EQ(all.messages[2].ready, 3);
  EXPECT_EQ(all.update, 0.6);
}

TEST(LinkSentence, NamesAPortOnlyNearItsSpeed) {
  EXPECT_EQ(link_sentence(12e6), "this link moves 12.0 MB/s (96.0 Mbit/s): it is a 100 Mbit port");
  EXPECT_EQ(link_sentence(117.5e6), "this link moves 118 MB/s (940 Mbit/s): it is a 1 Gbit port");
  EXPECT_EQ(link_sentence(30e6), "this link moves 30.0 MB/s (240 Mbit/s)");
  EXPECT_EQ(link_sentence(2.9e9), "this link moves 2.90 GB/s (23.2 Gbit/s), as a 25 Gbit port does");
}

Measurements two_hosts(double link, double sums) {
  Measurements m;
  for (int rank = 0; rank < 2; ++rank) {
    RankMeasurements r;
    r.rank = r.node = rank;
    r.host = rank == 0 ? "a" : "b";
    r.product_flops = 1e12;
    r.disk_free = 1e9;
    r.steps.assign(3, step_of_three());
    for (StepTimeline& step : r.steps) {
      for (TimedMessage& message : step.messages) {
        message.bytes = 100e6;
      }
    }
    m.ranks.push_back(r);
  }
  m.links.push_back({.from = 0, .to = 1, .there = link, .back = link});
  m.network = network_at(sums);
  m.target_tokens = 1000;
  m.checkpoint_bytes = 1e8;
  m.checkpoints = 7;
  return m;
}

TEST(Prediction, NamesTheBottleneckAndWhatHelps) {
  train::TrainConfig config;
  config.stop.max_steps = 3600;
  const Prediction slow = predict(two_hosts(12e6, 11.5e6), config, 2.0);
  EXPECT_EQ(slow.bottleneck, "network") << slow.sentence;
  EXPECT_NE(slow.sentence.find("it is a 100 Mbit port"), std::string::npos) << slow.sentence;
  EXPECT_NEAR(slow.seconds, 3600 * slow.step.step, 1e-6);
  EXPECT_NEAR(slow.cost, 2 * slow.step.step, 1e-9);
  const auto step_if = [&slow](const std::string& name) {
    for (const WhatIf& w : slow.what_if) {
      if (w.name.find(name) != std::string::npos) {
        return w.step;
      }
    }
    return -1.0;
  };
  EXPECT_NEAR(step_if("infinitely"), 3.5, 1e-9);
  EXPECT_NEAR(step_if("one worker"), 6.5, 1e-9);
  EXPECT_LT(step_if("10 Gbit"), 3.6);
  EXPECT_LT(step_if("bf16"), slow.step.step);
  const Prediction fast = predict(two_hosts(1.2e9, 1e9), config, kNotMeasured);
  EXPECT_EQ(fast.bottleneck, "compute") << fast.sentence;
  EXPECT_TRUE(fast.warnings.empty());
  EXPECT_TRUE(fast.problem.empty());
}

TEST(Prediction, NamesWhatIsNotLikeTheOthers) {
  Measurements m = two_hosts(1.2e9, 1e9);
  m.ranks[1].product_flops = 0.5e12;
  for (StepTimeline& step : m.ranks[1].steps) {
    step.backward_end = 5;
  }
  m.links[0].clock_offset = 5;
  m.links[0].back = 1e8;
  m.ranks[1].disk_free = 1e8;
  const Prediction p = predict(m, {}, kNotMeasured);
  EXPECT_EQ(p.bottleneck, "slow_rank") << p.sentence;
  ASSERT_EQ(p.warnings.size(), 3U);
  EXPECT_NE(p.warnings[0].find("rank 1 on b computes 50 % slower"), std::string::npos) << p.warnings[0];
  EXPECT_NE(p.warnings[1].find("b -> a moves 100 MB/s"), std::string::npos) << p.warnings[1];
  EXPECT_NE(p.warnings[2].find("the clock of b is 5 s ahead of that of a"), std::string::npos) << p.warnings[2];
  EXPECT_NE(p.problem.find("on b has 100 MB free"), std::string::npos) << p.problem;
}

TEST(Measurements, TravelAsText) {
  const Measurements all = two_hosts(12e6, 1e9);
  RankMeasurements m = all.ranks[0];
  m.links = all.links;
  m.device = "a \"device\"\n";
  const RankMeasurements back = parse_measurements(to_text(m));
  EXPECT_EQ(back.device, m.device);
  EXPECT_EQ(back.steps.size(), 3U);
  EXPECT_EQ(back.steps[2].messages[1].ready, 2.0);
  EXPECT_EQ(back.links[0].there, 12e6);
  EXPECT_EQ(back.product_flops, 1e12);
  for (const char* bad : {"", "{}", "[1]", "{\"rank\": \"x\"}", "nonsense"}) {
    EXPECT_THROW(parse_measurements(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace tandem::preflight
