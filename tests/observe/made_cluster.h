// Runs of many ranks made up for tests, by the physics of data-parallel training: a step takes what the slowest rank
// computes, and what of the exchange does not hide behind it.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "observe/run_reader.h"

namespace tandem::testing {

struct MadeCluster {
  int ranks = 4;
  double parameters = 60.9e6;
  bool bf16_wire = false;
  double compute = 0.5;    // seconds a step of every rank
  double slow_factor = 1;  // of the slow rank's compute
  double slow_data = 0;    // seconds more that it waits for data
  int slow_rank = 1;
  double data = 0.002;  // seconds a step
  double link = 125e6;  // bytes a second and direction, with headers
  double stated_bits = observe::kUnknown;
  double overlap = 0;   // share of compute behind which communication may hide
  double noise = 0.02;  // relative, of compute, each window
  double link_noise = 0.02;
  int windows = 30;
  double steps_per_window = 20;
  double validation = 10;  // seconds, every 10th window
  bool clock_of_transfers = true;
  double share_of_peak = 0.5;  // while computing
  double peak = 15e12;
  bool gpu = true;
  double power_idle = 45, power_full = 220, power_limit = 250, utilisation = 98;
  double throttled = 0;  // share of time on the slow rank
  bool probes = true;

  static constexpr double kHeaders = 66.0 / 1448;  // on top of the payload

  double bytes() const { return 2.0 * (ranks - 1) / ranks * parameters * (bf16_wire ? 2 : 4); }  // each way, a step
  double transfer() const { return ranks > 1 ? bytes() * (1 + kHeaders) / link : 0; }
  // A mean step without noise.
  double hidden() const { return std::min(transfer(), overlap * compute); }
  double exposed() const { return transfer() - hidden(); }
  double slowest() const { return std::max(compute * slow_factor + slow_data, compute) + data; }
  double step() const { return slowest() + exposed(); }

  observe::RunData make(uint64_t seed, double start = 1.7e9) const {
    std::mt19937_64 random(seed);
    observe::RunData run;
    run.name = "made";
    for (int rank = 0; rank < ranks; ++rank) {
      observe::RankMetrics m;
      m.rank = rank;
      m.setups.push_back(setup(rank, start));
      m.gpu_name = gpu ? "Made GPU" : "";
      run.ranks.push_back(std::move(m));
    }
    double clock = start;
    for (int window = 1; window <= windows; ++window) {
      add_window(run, window, clock, random);
    }
    return run;
  }

 private:
  observe::SetupPoint setup(int rank, double start) const {
    observe::SetupPoint s;
    s.time = start;
    s.schema = 1, s.rank = rank, s.ranks = ranks, s.node = rank, s.nodes = ranks, s.parameters = parameters;
    s.sharded = 0, s.planned_sent_bytes = bytes(), s.planned_received_bytes = bytes();
    s.peak_flops = peak;
    s.host = "host" + std::to_string(rank), s.device = gpu ? "Made GPU" : "CPU", s.backend = gpu ? "cuda" : "cpu";
    s.precision = "f32", s.wire = bf16_wire ? "bf16" : "f32", s.interface = "eth0";
    return s;
  }

  void add_window(observe::RunData& run, int window, double& clock, std::mt19937_64& random) const {
    std::normal_distribution<double> normal;
    std::vector<double> own;
    for (int rank = 0; rank < ranks; ++rank) {
      own.push_back(compute * (rank == slow_rank ? slow_factor : 1) * std::exp(noise * normal(random)));
    }
    const auto data_of = [&](int rank) { return data + (rank == slow_rank ? slow_data : 0); };
    double longest = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      longest = std::max(longest, own[static_cast<size_t>(rank)] + data_of(rank));
    }
    const double transferring = transfer() * std::exp(link_noise * normal(random));
    const double seconds = longest + transferring - std::min(transferring, overlap * compute);
    const double pause = window % 10 == 0 ? validation : 0;
    clock += seconds * steps_per_window + pause;
    for (int rank = 0; rank < ranks; ++rank) {
      const double mine = own[static_cast<size_t>(rank)];
      observe::TrainPoint t;
      t.step = static_cast<int64_t>(window * steps_per_window);
      t.time = clock;
      t.steps = steps_per_window;
      t.loss = 3, t.nll = 2;
      t.compute_seconds = mine * t.steps;
      t.data_seconds = data_of(rank) * t.steps;
      t.communication_seconds = ranks > 1 ? (seconds - mine - data_of(rank)) * t.steps : 0;
      t.transfer_seconds =
          clock_of_transfers && ranks > 1 ? (transferring + longest - mine - data_of(rank)) * t.steps : 0;
      t.validation_seconds = pause;
      t.sent_bytes = t.received_bytes = ranks > 1 ? bytes() * t.steps : 0;
      t.flops = peak * share_of_peak * compute * t.steps;
      t.elapsed_seconds = clock - 1.7e9;
      observe::RankMetrics& m = run.ranks[static_cast<size_t>(rank)];
      m.train.push_back(t);
      if (probes) {
        m.probes.push_back(probe(rank, t, mine / seconds, seconds * steps_per_window + pause));
      }
    }
  }

  observe::ProbePoint probe(int rank, const observe::TrainPoint& t, double busy, double seconds) const {
    observe::ProbePoint p;
    p.step = t.step, p.time = t.time, p.seconds = seconds;
    if (ranks > 1) {
      const double packets = t.sent_bytes / 1448;
      p.network_sent_bytes = p.network_received_bytes = t.sent_bytes + packets * 66;
      p.network_sent_packets = p.network_received_packets = packets;
      p.network_sent_dropped = p.network_received_dropped = 0;
      p.network_link_bits_per_second = stated_bits;
    }
    if (gpu) {
      const double work = t.step_seconds() / seconds * busy;
      p.gpu_power_watts = power_idle + (power_full - power_idle) * work;
      p.gpu_power_limit_watts = power_limit;
      p.gpu_utilisation_percent = utilisation;
      p.gpu_sm_clock_mhz = rank == slow_rank && throttled > 0 ? 900 : 1380;
      p.gpu_throttled_seconds = rank == slow_rank ? throttled * seconds : 0;
      p.gpu_throttle = rank == slow_rank && throttled > 0 ? "hardware_thermal" : "";
    }
    return p;
  }
};

}  // namespace tandem::testing
