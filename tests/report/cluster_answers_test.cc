// Labelled runs of many ranks and the answers that they must get: every trap of reading a run's hardware and network,
// each over many draws of sizes and noise. What an answer says is compared with the physics that made the run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "asked.h"
#include "core/human.h"
#include "observe/made_cluster.h"
#include "observe/verdicts/exchange.h"

namespace tandem::report {

namespace {

using testing::ask;
using testing::Asked;
using testing::MadeCluster;

// Draws of sizes and noise; TANDEM_SOAK asks for many.
uint64_t seeds() { return std::getenv("TANDEM_SOAK") != nullptr ? 3000 : 100; }

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed * 7919 + 13) {}
  double between(double low, double high) { return std::exp(uniform(std::log(low), std::log(high))); }
  double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  int whole(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

 private:
  std::mt19937_64 random_;
};

// Sizes of all sorts: models of 5 to 500 million, 2 to 12 ranks, steps of 50 ms to 5 s.
MadeCluster any(Draw& draw) {
  MadeCluster m;
  m.ranks = draw.whole(2, 12);
  m.parameters = draw.between(5e6, 500e6);
  m.compute = draw.between(0.05, 5);
  m.overlap = draw.uniform(0, 0.6);
  m.windows = draw.whole(25, 60);
  m.noise = draw.uniform(0, 0.05);
  m.data = m.compute * draw.uniform(0, 0.02);
  m.validation = m.compute * draw.uniform(0, 200);
  m.bf16_wire = draw.whole(0, 1) == 1;
  return m;
}

// The link that makes waiting take `share` of a step.
void set_wait(MadeCluster& m, double share) {
  const double exposed = share / (1 - share) * m.slowest();
  m.link = m.bytes() * (1 + MadeCluster::kHeaders) / (exposed + m.overlap * m.compute);
}

struct Case {
  std::string name;
  const char* key;
  std::function<observe::RunData(Draw&, uint64_t)> run;
  std::string label;
  std::string says;  // a part of the answer
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

using Change = std::function<void(MadeCluster&, Draw&)>;

// Any sizes, changed.
std::function<observe::RunData(Draw&, uint64_t)> with(const Change& change) {
  return [change](Draw& draw, uint64_t seed) {
    MadeCluster m = any(draw);
    change(m, draw);
    return m.make(seed);
  };
}

// A port of `bits`, at what TCP moves over it, with so little compute that it decides.
Change port(double bits, double stated = observe::kUnknown) {
  return [bits, stated](MadeCluster& m, Draw& draw) {
    m.link = bits / 8 * draw.uniform(0.84, 0.97);
    m.stated_bits = stated;
    m.compute = m.transfer() * draw.uniform(0.02, 0.2);
    m.data = 0;
  };
}

std::vector<Case> network_cases() {
  return {
      {"port_of_100_mbit", "network", with(port(100e6)), "network_bound", "it is a 100 Mbit port"},
      {"port_of_100_mbit_stated", "network", with(port(100e6, 100e6)), "network_bound", "it is full"},
      {"port_of_1_gbit", "network", with(port(1e9)), "network_bound", "it is a 1 Gbit port"},
      {"port_of_1_gbit_stated", "network", with(port(1e9, 1e9)), "network_bound", "it is full"},
      {"port_of_10_gbit", "network", with(port(10e9)), "network_bound", "it is a 10 Gbit port"},
      {"shaped_below_what_the_driver_states", "network", with(port(100e6, 10e9)), "network_bound",
       "though its driver states 10.0 Gbit/s"},
      {"kilobytes_read_as_megabits", "network",
       [](Draw& draw, uint64_t seed) {  // 200,000 KB/s on four V100: not "200 Mbit/s of 1,000"
         MadeCluster m{.compute = draw.uniform(0.7, 0.8)};
         m.link = m.bytes() * (1 + MadeCluster::kHeaders) / draw.uniform(0.9, 1.0);
         m.stated_bits = 10e9;
         return m.make(seed);
       },
       "network_bound", "Gbit/s)"},
      {"half_of_it", "network", with([](MadeCluster& m, Draw& draw) { set_wait(m, draw.uniform(0.55, 0.9)); }),
       "network_bound", "with an infinitely fast network"},
      {"a_part_of_it", "network", with([](MadeCluster& m, Draw& draw) { set_wait(m, draw.uniform(0.15, 0.4)); }),
       "partly", "In part"},
      {"little_of_it", "network", with([](MadeCluster& m, Draw& draw) { set_wait(m, draw.uniform(0.005, 0.06)); }),
       "no", "No: waiting for the network takes"},
      {"all_hidden_behind_compute", "network", with([](MadeCluster& m, Draw& draw) {
         m.overlap = 0.8, m.noise = 0.005;
         m.link = m.bytes() * (1 + MadeCluster::kHeaders) / (m.compute * draw.uniform(0.5, 0.75));
       }),
       "no", "go each way"},
      {"waiting_for_a_slow_rank", "network", with([](MadeCluster& m, Draw& draw) {
         m.ranks = draw.whole(3, 12), m.slow_rank = draw.whole(0, m.ranks - 1);
         m.slow_factor = draw.uniform(1.5, 3), m.link = 1e12;
       }),
       "slow_rank", "for a slower one"},
      {"one_rank", "network", with([](MadeCluster& m, Draw&) { m.ranks = 1; }), "single", "one rank"},
      {"without_probes", "network", with([](MadeCluster& m, Draw& draw) {
         port(100e6)(m, draw);
         m.probes = false;
       }),
       "network_bound", "100 Mbit port"},
      {"without_a_clock_of_transfers", "network", with([](MadeCluster& m, Draw& draw) {
         port(100e6)(m, draw);
         m.clock_of_transfers = false;
       }),
       "network_bound", "100 Mbit port"},
      {"moved_to_a_faster_network", "network",
       [](Draw& draw, uint64_t seed) {
         MadeCluster slow = any(draw), fast = slow;
         port(100e6)(slow, draw);
         fast.link = 1e12;
         observe::RunData run = slow.make(seed), later = fast.make(seed + 1, run.ranks[0].train.back().time + 100);
         const int64_t done = run.main().last_step();
         for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
           later.ranks[rank].setups[0].step = done;
           for (observe::TrainPoint& point : later.ranks[rank].train) {
             point.step += done;
           }
           const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
           append(run.ranks[rank].setups, later.ranks[rank].setups);
           append(run.ranks[rank].train, later.ranks[rank].train);
           append(run.ranks[rank].probes, later.ranks[rank].probes);
         }
         return run;
       },
       "no", "No: waiting"},
      {"ranks_of_one_host", "network",
       [](Draw& draw, uint64_t seed) {
         MadeCluster m = any(draw);
         set_wait(m, 0.7);
         observe::RunData run = m.make(seed);
         for (observe::RankMetrics& metrics : run.ranks) {
           metrics.setups[0].node = 0;
         }
         return run;
       },
       "network_bound", "all ranks are on one host"},
      {"a_clock_that_was_set_back", "network",
       [](Draw& draw, uint64_t seed) {
         MadeCluster m = any(draw);
         port(1e9)(m, draw);
         observe::RunData run = m.make(seed);
         for (observe::RankMetrics& metrics : run.ranks) {
           metrics.setups[0].time += 1e6;
         }
         return run;
       },
       "network_bound", "1 Gbit port"},
      {"a_link_that_others_use_too", "network",
       [](Draw& draw, uint64_t seed) {
         MadeCluster m = any(draw);
         m.validation = 0, m.parameters = 100e6;
         port(1e9)(m, draw);
         observe::RunData run = m.make(seed);
         for (observe::RankMetrics& metrics : run.ranks) {
           for (observe::ProbePoint& probe : metrics.probes) {
             probe.network_sent_bytes *= 3, probe.network_sent_packets *= 3;
           }
         }
         return run;
       },
       "network_bound", "others use it too"},
      {"only_one_rank_was_read", "network",
       [](Draw& draw, uint64_t seed) {
         MadeCluster m = any(draw);
         port(1e9)(m, draw);
         observe::RunData run = m.make(seed);
         run.ranks.resize(1);
         return run;
       },
       "network_bound", "1 Gbit port"},
      {"rate_follows_from_steps", "step_and_network", with([](MadeCluster& m, Draw&) { m.link = 1e12; }),
       "steps_set_the_rate", "more MB/s come with faster steps"},
      {"network_sets_the_pace", "step_and_network", with(port(100e6)), "network_sets_the_pace",
       "here the network sets the pace"},
      {"pace_of_one_rank", "step_and_network", with([](MadeCluster& m, Draw&) { m.ranks = 1; }), "single", "one rank"},
      {"pace_of_a_few_windows", "step_and_network", with([](MadeCluster& m, Draw&) { m.windows = 3; }), "too_early",
       "yet"},
  };
}

std::vector<Case> work_cases() {
  const auto spin = [](double power, double limit) {
    return with([=](MadeCluster& m, Draw& draw) {
      port(1e9)(m, draw);
      m.power_idle = m.power_full = power, m.power_limit = limit, m.utilisation = draw.uniform(97, 100);
    });
  };
  const auto fast = [](const Change& change) {
    return with([change](MadeCluster& m, Draw& draw) {
      m.link = 1e13, m.validation = 0, m.ranks = draw.whole(1, 8);
      change(m, draw);
    });
  };
  return {
      {"v100_at_45_watts", "gpu_work", spin(45, 250), "spinning", "at 45 W is a kernel that spins"},
      {"p100_at_52_watts", "gpu_work", spin(52, 250), "spinning", "not work"},
      {"h200_at_120_watts", "gpu_work", spin(120, 700), "spinning", "not work"},
      {"working", "gpu_work", fast([](MadeCluster& m, Draw& d) { m.share_of_peak = d.uniform(0.5, 0.9); }), "working",
       "that matrix products reach here"},
      {"working_at_low_utilisation", "gpu_work",
       fast([](MadeCluster& m, Draw& d) { m.share_of_peak = d.uniform(0.5, 0.9), m.utilisation = 40; }), "working",
       "says only that some kernel ran"},
      {"partly", "gpu_work", fast([](MadeCluster& m, Draw& d) { m.share_of_peak = d.uniform(0.13, 0.35); }), "partly",
       "In part"},
      {"small_batches", "gpu_work", fast([](MadeCluster& m, Draw& d) {
         m.share_of_peak = d.uniform(0.01, 0.08), m.utilisation = 60, m.power_full = 120;
       }),
       "hardly", "Hardly"},
      {"busy_memory_and_little_arithmetic", "gpu_work",
       fast([](MadeCluster& m, Draw& d) { m.share_of_peak = d.uniform(0.02, 0.08), m.utilisation = 100; }), "hardly",
       "some kernel ran"},
      {"small_kernels_do_not_wait", "gpu_work", fast([](MadeCluster& m, Draw& d) {
         m.share_of_peak = d.uniform(0.13, 0.3), m.utilisation = 100, m.power_full = 70;
       }),
       "partly", "some kernel ran"},
      {"nothing_but_the_management_tool", "gpu_work",  // 100 % at 45 W of 250, and no clock of steps
       [](Draw& draw, uint64_t seed) {
         MadeCluster m = any(draw);
         m.power_idle = m.power_full = 45, m.utilisation = 100;
         observe::RunData run = m.make(seed);
         for (observe::RankMetrics& metrics : run.ranks) {
           metrics.train.clear();
         }
         return run;
       },
       "spinning", "at 45 W"},
      {"cpu_working", "gpu_work",
       fast([](MadeCluster& m, Draw& d) { m.gpu = false, m.share_of_peak = d.uniform(0.5, 0.8); }), "working",
       "a rank"},
      {"peak_measured_beside_others", "gpu_work",
       fast([](MadeCluster& m, Draw& d) { m.share_of_peak = d.uniform(1.1, 2); }), "working", "when the run began"},
      {"power_alone_high", "gpu_work", fast([](MadeCluster& m, Draw&) { m.share_of_peak = 0; }), "working", "power"},
      {"power_alone_low", "gpu_work",
       fast([](MadeCluster& m, Draw&) { m.share_of_peak = 0, m.power_full = 60, m.utilisation = 20; }), "hardly",
       "power"},
      {"nothing_measured", "gpu_work",
       fast([](MadeCluster& m, Draw&) { m.share_of_peak = 0, m.gpu = false, m.probes = false; }), "empty",
       "cannot be said"},
      {"even", "slow_rank", with([](MadeCluster&, Draw&) {}), "even", "No: the slowest"},
      {"even_with_loud_noise", "slow_rank",
       with([](MadeCluster& m, Draw&) { m.noise = 0.1, m.ranks = 3, m.windows = 60; }), "even", "a difference of"},
      {"slow_compute", "slow_rank", with([](MadeCluster& m, Draw& d) {
         m.link = 1e13, m.slow_rank = d.whole(0, m.ranks - 1), m.slow_factor = d.uniform(1.3, 3);
       }),
       "slow_rank", "its compute is slower"},
      {"slow_host_of_two_ranks", "slow_rank",
       [](Draw& draw, uint64_t seed) {
         MadeCluster m = any(draw);
         m.ranks = 4, m.link = 1e13, m.slow_rank = 2, m.slow_factor = draw.uniform(1.3, 3);
         observe::RunData run = m.make(seed);
         run.ranks[3].train = run.ranks[2].train;
         return run;
       },
       "slow_rank", "(and 1 more like it)"},
      {"another_is_slow_in_every_window", "slow_rank",
       [](Draw& draw, uint64_t seed) {
         MadeCluster m = any(draw);
         m.ranks = 4, m.link = 1e13, m.windows = 41, m.noise = 0.01;  // the first is warm-up
         observe::RunData run = m.make(seed);
         for (size_t window = 0; window < 41; ++window) {
           for (size_t rank = 0; rank < 4; ++rank) {
             observe::TrainPoint& point = run.ranks[rank].train[window];
             (window % 4 == rank ? point.compute_seconds : point.communication_seconds) += m.compute * point.steps;
           }
         }
         return run;
       },
       "even", "for whichever is slowest at the time"},
      {"slow_no_more", "slow_rank",
       [](Draw& draw, uint64_t seed) {
         MadeCluster m = any(draw);
         m.link = 1e13;
         observe::RunData run = m.make(seed);
         for (observe::RankMetrics& metrics : run.ranks) {
           for (size_t window = 0; window < metrics.train.size() / 2; ++window) {
             observe::TrainPoint& point = metrics.train[window];
             (metrics.rank == 1 ? point.compute_seconds : point.communication_seconds) += m.compute * point.steps;
           }
         }
         return run;
       },
       "slow_rank", "in the newest third"},
      {"even_as_far_as_it_was_read", "slow_rank",
       [](Draw& draw, uint64_t seed) {
         MadeCluster m = any(draw);
         m.ranks = 4;
         observe::RunData run = m.make(seed);
         run.ranks.pop_back();
         return run;
       },
       "even", "Of 4 ranks 3 were read"},
      {"slow_data", "slow_rank", with([](MadeCluster& m, Draw& d) {
         m.link = 1e13, m.slow_rank = d.whole(0, m.ranks - 1), m.slow_data = m.compute * d.uniform(0.4, 2);
       }),
       "slow_rank", "longer for data"},
      {"slow_by_heat", "slow_rank", with([](MadeCluster& m, Draw& d) {
         m.link = 1e13, m.slow_rank = d.whole(0, m.ranks - 1), m.slow_factor = d.uniform(1.3, 2);
         m.throttled = d.uniform(0.3, 1);
       }),
       "slow_rank", "slowed down for heat"},
      {"slow_but_the_network_is_slower", "slow_rank", with([](MadeCluster& m, Draw& d) {
         port(100e6)(m, d);
         m.compute = m.transfer() * 0.02, m.slow_factor = 1.3, m.noise = 0.01;
       }),
       "even", "No: the slowest"},
      {"one_rank_is_not_slow", "slow_rank", with([](MadeCluster& m, Draw&) { m.ranks = 1; }), "single", "one rank"},
  };
}

std::vector<Case> all_cases() {
  std::vector<Case> cases = network_cases();
  for (Case& one : work_cases()) {
    cases.push_back(std::move(one));
  }
  return cases;
}

class LabelledCluster : public ::testing::TestWithParam<Case> {};

TEST_P(LabelledCluster, GetsTheRightVerdictAtAnySize) {
  const Case& c = GetParam();
  for (uint64_t seed = 1; seed <= seeds(); ++seed) {
    Draw draw(seed);
    const Asked v = ask(c.key, c.run(draw, seed));
    ASSERT_EQ(v.label, c.label) << "seed " << seed << ": " << v.answer;
    ASSERT_NE(v.answer.find(c.says), std::string::npos) << "seed " << seed << ": " << v.answer;
    ASSERT_EQ(v.answer.find("nan"), std::string::npos) << v.answer;
    ASSERT_EQ(v.answer.find("inf "), std::string::npos) << v.answer;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, LabelledCluster, ::testing::ValuesIn(all_cases()),
                         [](const auto& tested) { return tested.param.name; });

// The answers against the physics: with an infinite network within 5 %, with bf16 within 15 %, bytes within 1 %.
TEST(ClusterAnswers, WhatIfIsWhatWouldBe) {
  for (uint64_t seed = 1; seed <= 2 * seeds(); ++seed) {
    Draw draw(seed);
    MadeCluster m = any(draw);
    m.bf16_wire = false;
    m.noise = 0.01;
    set_wait(m, draw.uniform(0.15, 0.97));
    const Asked v = ask("network", m.make(seed));
    MadeCluster half = m;
    half.bf16_wire = true;
    EXPECT_NEAR(v.figure("step") / m.step(), 1, 0.04) << seed;
    EXPECT_NEAR(v.figure("step_infinite_network") / m.slowest(), 1, 0.05) << seed;
    EXPECT_NEAR(v.figure("step_bf16") / half.step(), 1, 0.15) << seed;
    EXPECT_NEAR(v.figure("sent_over_planned"), 1, 0.01) << seed;
    EXPECT_NEAR(v.figure("interface_payload_over_planned"), 1, 0.03) << seed;
    EXPECT_NEAR(v.figure("rate_bits"), 8 * v.figure("rate"), 1e-3) << seed;
  }
}

TEST(ClusterAnswers, RunOfTheReference) {
  // Four V100 on a port of 100 Mbit/s: 365.3 MB a step, 35 s, 10.4 MB/s.
  MadeCluster m{.parameters = 60'880'896, .compute = 0.6, .link = 10.9e6};
  const Asked v = ask("network", m.make(1));
  EXPECT_NEAR(v.figure("sent_per_step"), 365.3e6, 0.1e6);
  EXPECT_NEAR(v.figure("step"), 35.6, 1);
  EXPECT_GT(v.figure("exposed_share"), 0.95);
  EXPECT_NE(v.answer.find("MB/s (8"), std::string::npos) << v.answer;
  EXPECT_NE(v.answer.find("100 Mbit port"), std::string::npos) << v.answer;
  EXPECT_EQ(v.confidence, observe::Confidence::high);
}

TEST(ClusterAnswers, WorkIsMeasuredAgainstThePeak) {
  const MadeCluster m{.ranks = 2, .compute = 0.5, .data = 0.1, .link = 1e13, .share_of_peak = 0.6, .peak = 700e12};
  const Asked v = ask("gpu_work", m.make(3));
  EXPECT_NEAR(v.figure("share_of_peak"), 0.5, 0.02);  // 0.6 over 0.5 of 0.6 s
  EXPECT_NEAR(v.figure("idle_share"), 1.0 / 6, 0.02);
  EXPECT_NEAR(v.figure("achieved"), 350e12, 15e12);
}

// What a GPU draws while a model is loaded, validated or saved says nothing about its steps.
TEST(ClusterAnswers, PowerIsThatOfSteps) {
  MadeCluster m;
  m.ranks = 1, m.data = 0, m.noise = 0, m.validation = 500, m.power_full = 695, m.power_limit = 700;
  observe::RunData run = m.make(1);
  observe::RankMetrics& metrics = run.ranks[0];
  for (observe::ProbePoint& probe : metrics.probes) {
    probe.gpu_capped_seconds = probe.seconds;
  }
  observe::ProbePoint starting = metrics.probes.front();
  starting.time = metrics.setups[0].time, starting.seconds = 100, starting.gpu_power_watts = 120;
  metrics.setups[0].time -= 100;
  metrics.probes.insert(metrics.probes.begin(), starting);
  for (observe::TrainPoint& point : metrics.train) {
    point.idle_seconds = 0.002 * point.step_seconds();
    point.rows = 50'000, point.dead_rows = 3'000;
  }
  const Asked v = ask("gpu_work", run);
  EXPECT_NEAR(v.figure("dead_row_share"), 0.06, 1e-9);
  EXPECT_NE(v.answer.find("6.0 % of the rows that it works through hold no token"), std::string::npos) << v.answer;
  EXPECT_NEAR(v.figure("power"), 695, 1e-6);
  EXPECT_NEAR(v.figure("power_capped_share"), 1, 1e-9);
  EXPECT_NEAR(v.figure("device_idle_share"), 0.002, 1e-9);
  EXPECT_NE(v.answer.find("power 695 W of 700 W (99 %), the limit that holds the clock down, to 1380 MHz in the mean"),
            std::string::npos)
      << v.answer;
  EXPECT_NE(v.answer.find("between two steps the GPU idles for 0.20 % of one"), std::string::npos) << v.answer;
}

// A pause may be anywhere in a window: here at its end.
TEST(ClusterAnswers, PowerOfAWindowWithAPauseIsNotTakenForThatOfSteps) {
  MadeCluster m;
  m.ranks = 1, m.data = 0, m.noise = 0, m.validation = 0, m.power_full = 200;
  observe::RunData run = m.make(1);
  observe::RankMetrics& metrics = run.ranks[0];
  observe::TrainPoint& window = metrics.train[5];
  observe::ProbePoint& probe = metrics.probes[5];
  observe::ProbePoint working = probe;
  window.validation_seconds = window.compute_seconds /= 2;
  probe.seconds = working.seconds = window.compute_seconds;
  working.time -= working.seconds;
  probe.gpu_power_watts = 50;
  metrics.probes.insert(metrics.probes.begin() + 5, working);
  EXPECT_NEAR(ask("gpu_work", run).figure("power"), 200, 1e-6);
}

// Probes that are too far apart for that are all counted.
TEST(ClusterAnswers, PowerWithoutAProbeOfStepsAlone) {
  MadeCluster m;
  m.ranks = 1, m.data = 0, m.noise = 0, m.validation = 0, m.power_full = 200;
  observe::RunData run = m.make(1);
  for (observe::TrainPoint& point : run.ranks[0].train) {
    point.validation_seconds = 0.2 * point.step_seconds();
    point.compute_seconds *= 0.8;
  }
  EXPECT_NEAR(ask("gpu_work", run).figure("power"), 200, 1e-6);
}

TEST(ClusterAnswers, TheFirstWindowIsWarmUp) {
  observe::RunData run = MadeCluster{.ranks = 2, .link = 1e13}.make(1);
  const double before = ask("network", run).figure("step");
  for (observe::RankMetrics& metrics : run.ranks) {
    metrics.train.front().communication_seconds += 1e5;
  }
  EXPECT_DOUBLE_EQ(ask("network", run).figure("step"), before);
}

TEST(ClusterAnswers, RanksThatShareAHostHaveOneLink) {
  observe::RunData run = MadeCluster{.ranks = 4, .link = 125e6}.make(1);
  for (observe::RankMetrics& metrics : run.ranks) {
    metrics.setups[0].node = metrics.rank / 2;
  }
  EXPECT_TRUE(std::isnan(ask("network", run).figure("interface_payload_over_planned")));
}

TEST(Units, HaveTheirNames) {
  EXPECT_EQ(rate_text(12e6), "12.0 MB/s (96.0 Mbit/s)");
  EXPECT_EQ(rate_text(200210.8e3), "200 MB/s (1.60 Gbit/s)");
  EXPECT_EQ(bits_text(100e6), "100 Mbit/s");
  EXPECT_EQ(bits_text(999.9e6), "1.00 Gbit/s");
  EXPECT_EQ(size_text(365.3e6), "365 MB (348 MiB)");
  EXPECT_EQ(size_text(12), "12.0 B");
  EXPECT_EQ(flops_text(437e12), "437 TFLOP/s");
  EXPECT_EQ(percent_text(0), "0 %");
  EXPECT_EQ(percent_text(0.0042), "0.42 %");
  EXPECT_EQ(percent_text(0.54), "54 %");
  EXPECT_EQ(seconds_text(0.0123), "12.3 ms");
  EXPECT_EQ(seconds_text(1.713), "1.71 s");
  EXPECT_EQ(observe::port_speed(84e6), 100e6);
  EXPECT_EQ(observe::port_speed(940e6), 1e9);
  EXPECT_EQ(observe::port_speed(1.6e9), 2.5e9);
  for (const double bad : {observe::kUnknown, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ((rate_text(bad) + size_text(bad) + percent_text(bad) + seconds_text(bad)).find("nan"), std::string::npos);
  }
}

}  // namespace

}  // namespace tandem::report
