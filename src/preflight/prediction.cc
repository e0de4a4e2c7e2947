#include "preflight/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/human.h"
#include "observe/verdicts/exchange.h"

namespace tandem::preflight {

namespace {

constexpr double kFull = 0.7;       // share of a link's rate from which on the link limits sums
constexpr double kTcpShare = 0.94;  // share of a port's speed that is payload
constexpr double kSlower = 0.05;    // a device slower than the others by more is named
constexpr double kLopsided = 0.7;   // a direction of a link is named if it is below this share of the fastest
constexpr double kClockOff = 1;     // seconds beyond which logs of two hosts cannot be compared

void compare_devices(const Measurements& m, std::vector<std::string>& warnings) {
  const double usual = middle_of(m.ranks, &RankMeasurements::product_flops).product_flops;
  for (const RankMeasurements& rank : m.ranks) {
    if (rank.product_flops < (1 - kSlower) * usual) {
      warnings.push_back(fmt::format("rank {} on {} computes {} slower than the others ({} against {})", rank.rank,
                                     rank.host, percent_text(1 - rank.product_flops / usual),
                                     flops_text(rank.product_flops), flops_text(usual)));
    }
    if (rank.device != m.ranks.front().device) {
      warnings.push_back(
          fmt::format("rank {} on {} has another device than rank 0 ({}, not {}): all wait for the "
                      "slower one",
                      rank.rank, rank.host, rank.device, m.ranks.front().device));
    }
  }
}

void compare_links(const Measurements& m, std::vector<std::string>& warnings) {
  double fastest = 0;
  for (const Link& link : m.links) {
    fastest = std::max({fastest, link.there, link.back});
  }
  for (const Link& link : m.links) {
    const std::string from = host_of(m, link.from), to = host_of(m, link.to);
    for (const auto& [a, b, rate] : {std::tuple(from, to, link.there), std::tuple(to, from, link.back)}) {
      if (rate < kLopsided * fastest) {
        warnings.push_back(
            fmt::format("{} -> {} moves {}, the fastest link {}", a, b, rate_text(rate), rate_text(fastest)));
      }
    }
    if (std::fabs(link.clock_offset) - link.clock_error > kClockOff) {
      warnings.push_back(fmt::format("the clock of {} is {} {} that of {}: let NTP set both", to,
                                     seconds_text(std::fabs(link.clock_offset)),
                                     link.clock_offset > 0 ? "ahead of" : "behind", from));
    }
  }
}

// Which disk cannot hold the checkpoints; "" if all can.
std::string disk_problem(const Measurements& m) {
  const double needed = m.checkpoints * m.checkpoint_bytes;
  for (const RankMeasurements& rank : m.ranks) {
    if (rank.disk_free < needed) {
      return fmt::format(
          "{} on {} has {} free, but {:g} checkpoints of {} need {}: make room, or lower checkpoint.keep_last",
          rank.disk, rank.host, human_bytes(rank.disk_free), m.checkpoints, human_bytes(m.checkpoint_bytes),
          human_bytes(needed));
    }
  }
  return "";
}

std::vector<StepTimeline> group_steps(const Measurements& m) {
  size_t count = m.ranks.front().steps.size();
  for (const RankMeasurements& rank : m.ranks) {
    count = std::min(count, rank.steps.size());
  }
  std::vector<StepTimeline> steps;
  for (size_t i = 0; i < count; ++i) {
    std::vector<StepTimeline> by_rank;
    for (const RankMeasurements& rank : m.ranks) {
      by_rank.push_back(rank.steps[i]);
    }
    steps.push_back(slowest(by_rank));
  }
  return steps;
}

// Bytes that cross a host's port, each way, for each byte of a buffer that is summed up.
double port_bytes(const Measurements& m, bool hierarchical) {
  std::map<int, double> ranks;
  for (const RankMeasurements& rank : m.ranks) {
    ++ranks[rank.node];
  }
  const auto hosts = static_cast<double>(ranks.size());
  const auto all = static_cast<double>(m.ranks.size());
  double most = 0;
  bool equal = true;
  for (const auto& [node, count] : ranks) {
    most = std::max(most, count);
    equal = equal && count == ranks.begin()->second;
  }
  return hierarchical && equal ? 2 * (hosts - 1) / hosts : 2 * most * (all - most) / all;
}

// Bytes per second of the slowest direction of all links; NaN if there is no link.
double slowest_link(const Measurements& m) {
  double rate = kNotMeasured;
  for (const Link& link : m.links) {
    rate = std::fmin(rate, std::fmin(link.there, link.back));
  }
  return rate;
}

// The network if its ports had another speed.
NetworkModel with_port(const Measurements& m, const NetworkModel& now, double bits, bool hierarchical) {
  const double link = slowest_link(m), other = kTcpShare * bits / 8, share = port_bytes(m, hierarchical);
  if (other < link) {
    return at_rate(now, std::min(1.0, other / share / now.bytes_per_second));
  }
  const bool limited = now.bytes_per_second * share >= kFull * link;
  return limited ? at_rate(now, other / link) : now;
}

// The timeline of a step in which one rank does the work of all.
StepTimeline alone(const Measurements& m, size_t step) {
  StepTimeline all;
  for (const RankMeasurements& rank : m.ranks) {
    all.backward_end += rank.steps[step].backward_end;
    all.update = std::max(all.update, rank.steps[step].update);
    all.overhead = std::max(all.overhead, rank.steps[step].overhead);
  }
  return all;
}

void add_what_ifs(Prediction& p, const Measurements& m, const train::TrainConfig& config,
                  const std::vector<StepTimeline>& steps) {
  const auto add = [&](const std::string& name, const Forecast& f, double batch = 1) {
    p.what_if.push_back({name, f.step, batch * m.target_tokens / f.step});
  };
  add("as it is", p.step);
  if (m.ranks.size() == 1) {
    return;
  }
  for (const DType other : {DType::f32, DType::bf16}) {
    // The sums of a sharded optimizer do not travel back.
    const double now = config.dist.shard_optimizer ? static_cast<double>(size_of(m.wire)) : wire_bytes(m.wire);
    const double factor = static_cast<double>(size_of(other)) / now;
    if (factor < 1) {
      add(fmt::format("dist.wire={}: gradients of {} of the bytes", name_of(other), percent_text(factor)),
          forecast(with_gradients(steps, factor), m.network));
    }
  }
  for (const int micro_batches : {2, 4}) {
    add(fmt::format("batch.tokens={}: {} micro-batches a step", micro_batches * config.batch.tokens, micro_batches),
        forecast(with_micro_batches(steps, micro_batches), m.network), micro_batches);
  }
  if (std::isfinite(slowest_link(m))) {
    for (const double bits : {1e9, 10e9}) {
      add(fmt::format("{:g} Gbit/s between hosts", bits / 1e9),
          forecast(steps, with_port(m, m.network, bits, config.dist.hierarchical)));
    }
  }
  add("an infinitely fast network", forecast(steps, infinitely_fast()));
  std::vector<StepTimeline> single;
  for (size_t i = 0; i < steps.size(); ++i) {
    single.push_back(alone(m, i));
  }
  add("one worker alone", forecast(single, infinitely_fast()));
}

void add_duration(Prediction& p, const Measurements& m, const train::StopConfig& stop, double price) {
  const auto earlier = [&p](double steps) { p.steps = p.steps > 0 ? std::min(p.steps, steps) : steps; };
  if (stop.max_steps > 0) {
    earlier(static_cast<double>(stop.max_steps));
  }
  if (stop.max_epochs > 0 && m.epochs_a_step > 0) {
    earlier(std::ceil(stop.max_epochs / m.epochs_a_step));
  }
  if (stop.max_minutes > 0) {
    earlier(std::ceil(60 * stop.max_minutes / p.step.step));
  }
  p.seconds = p.steps * p.step.step;
  p.cost = p.seconds / 3600 * price;
}

// How much longer the slowest rank computes than the others on average, as a share.
double lag(const Measurements& m, size_t& slowest_rank) {
  std::vector<double> compute;
  for (const RankMeasurements& rank : m.ranks) {
    compute.push_back(forecast(rank.steps, infinitely_fast()).compute);
  }
  const auto most = std::ranges::max_element(compute);
  slowest_rank = static_cast<size_t>(most - compute.begin());
  const double all = std::accumulate(compute.begin(), compute.end(), 0.0);
  const double others = (all - *most) / std::max(1.0, static_cast<double>(compute.size()) - 1);
  return compute.size() > 1 ? *most / others - 1 : 0;
}

void name_bottleneck(Prediction& p, const Measurements& m) {
  const Forecast& f = p.step;
  const double share = f.exposed / f.step, link = slowest_link(m);
  const std::string costs =
      fmt::format("{} of a step ({} of {})", percent_text(share), seconds_text(f.exposed), seconds_text(f.step));
  size_t slow = 0;
  const double behind = lag(m, slow);
  if (share >= 0.5) {
    p.bottleneck = "network";
    p.sentence = fmt::format("The network is the bottleneck: it takes {}{}.", costs,
                             std::isfinite(link) ? "; " + link_sentence(link) : "");
  } else if (behind >= 2 * observe::kWorth) {
    p.bottleneck = "slow_rank";
    p.sentence = fmt::format("Rank {} on {} is the bottleneck: it computes {} longer than the others, who wait for it.",
                             m.ranks[slow].rank, m.ranks[slow].host, percent_text(behind));
  } else {
    p.bottleneck = "compute";
    p.sentence = share >= observe::kWorth ? fmt::format("Computing is the bottleneck, but the network adds {}.", costs)
                 : m.ranks.size() == 1
                     ? "Computing is the bottleneck: there is one worker and no network."
                     : fmt::format("Computing is the bottleneck: the network adds no more than {}.", costs);
  }
}

}  // namespace

std::string host_of(const Measurements& m, int node) {
  const auto found = std::ranges::find(m.ranks, node, &RankMeasurements::node);
  return found == m.ranks.end() ? "?" : found->host;
}

std::string link_sentence(double bytes_per_second) {
  constexpr double kNear = 0.84;   // TCP moves 84 to 95 % of a port's speed
  constexpr double kPlain = 10e9;  // faster ones are harder to tell apart
  const double bits = 8 * bytes_per_second, port = observe::port_speed(bits);
  std::string moves = "this link moves " + rate_text(bytes_per_second);
  if (!(bits >= kNear * port)) {
    return moves;
  }
  const std::string name = port_name(port);
  return port <= kPlain ? fmt::format("{}: it is a {}", moves, name) : fmt::format("{}, as a {} does", moves, name);
}

Prediction predict(const Measurements& m, const train::TrainConfig& config, double price) {
  require(!m.ranks.empty(), "no rank has measured anything");
  Prediction p;
  const std::vector<StepTimeline> steps = group_steps(m);
  p.step = forecast(steps, m.network);
  p.tokens_per_second = m.target_tokens / p.step.step;
  add_duration(p, m, config.stop, price);
  name_bottleneck(p, m);
  add_what_ifs(p, m, config, steps);
  compare_devices(m, p.warnings);
  compare_links(m, p.warnings);
  p.problem = disk_problem(m);
  return p;
}

}  // namespace tandem::preflight
