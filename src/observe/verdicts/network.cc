#include "observe/verdicts/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/human.h"
#include "core/units.h"
#include "observe/verdicts/rank_clock.h"
#include "observe/verdicts/traffic.h"
#include "observe/verdicts/waits.h"

namespace tandem {

namespace {

// A link is taken for full from here on: TCP moves 84 to 95 % of a port's speed.
constexpr double kFull = 0.7;
// The rate is known well enough to name the port when its two bounds are within this factor.
constexpr double kSure = 1.5;

const char* label_of(const Waits& w) {
  const double share = w.exposed / w.step;
  return share >= kWorth && w.exposed >= std::max(w.compute, w.data) ? "network_bound"
         : share >= kWorth                                           ? "partly"
         : w.others / w.step >= kWorth                               ? "slow_rank"
                                                                     : "no";
}

// With a share of the bytes: what was hidden behind compute still is.
double exposed_with_share(const Waits& w, double share) {
  const double hidden = w.transfer - w.exposed;
  return std::max(w.transfer * share - hidden, 0.0);
}

// "it is a 100 Mbit port", as far as the rate while transferring, between `least` and `most` bytes a second, shows it.
std::string port_text(Verdict& v, double least, double most, double stated_bits) {
  const double port = port_speed(8 * least);
  const bool sure = most / least < kSure && 8 * most >= kFull * port;
  if (sure) {
    v.add("port_bits", port, "bit/s");
  }
  const std::string name = fmt::format("{:g} {} port", port / (port < 1e9 ? 1e6 : 1e9), port < 1e9 ? "Mbit" : "Gbit");
  if (!(stated_bits > 0)) {
    return sure ? ": it is a " + name : "";
  }
  return fmt::format("{}, though its driver states {}: something on the way or in the hosts is slower",
                     sure ? ": no more than a " + name : "", bits_text(stated_bits));
}

// "this link moves 12.0 MB/s (96.0 Mbit/s): it is a 100 Mbit port"
std::string link_text(Verdict& v, const Waits& w, const LinkTraffic& link) {
  const double mean = link.bytes_per_second, most = mean * w.step / std::max(w.transfer, 1e-9);
  v.add("rate", mean, "B/s").add("rate_bits", 8 * mean, "bit/s").add("link_bits", link.stated_bits, "bit/s");
  v.add("link_share", 8 * mean / link.stated_bits).add("transfer_rate", w.measured ? most : kUnknown, "B/s");
  if (!(mean > 0)) {
    return "";
  }
  const std::string together = link.ranks > 1 ? fmt::format(" ({} ranks together)", link.ranks) : "";
  const std::string headers = link.with_headers ? " with headers" + together : "";
  const std::string against = link.stated_bits > 0
                                  ? fmt::format(", {} of the {} that its driver states",
                                                percent_text(8 * mean / link.stated_bits), bits_text(link.stated_bits))
                                  : "";
  if (link.one_host) {
    return fmt::format("; all ranks are on one host, so this is the exchange within it and no cable, on average {}{}",
                       rate_text(mean), headers);
  }
  if (v.label != "network_bound") {
    return fmt::format("; on average {}{} go each way{}", rate_text(mean), headers, against);
  }
  if (8 * most >= kFull * link.stated_bits && 8 * mean <= 1.05 * link.stated_bits) {
    return fmt::format("; this link moves {}{}{}: it is full", rate_text(mean), headers, against);
  }
  const double least = w.measured ? most : mean;
  return fmt::format("; {}this link moves {}{}{}", w.measured ? "" : "on average ", rate_text(least), headers,
                     port_text(v, least, most, link.stated_bits));
}

// Bytes a step against the plan, counted by the program and by the interface.
std::string bytes_text(Verdict& v, const std::vector<RankClock>& clocks, const LinkTraffic& link) {
  const RankClock& first = clocks.front();
  v.add("sent_per_step", first.sent, "B").add("received_per_step", first.received, "B");
  const double planned = first.setup.planned_sent_bytes;
  v.add("planned_sent_per_step", planned, "B").add("sent_over_planned", planned > 0 ? first.sent / planned : kUnknown);
  v.add("interface_payload_over_planned", link.payload_over_planned).add("dropped_packets", link.dropped);
  if (!(first.sent > 0)) {
    return "";
  }
  const double off = planned > 0 ? first.sent / planned - 1 : kUnknown;
  const std::string plan = std::isnan(off)          ? ""
                           : std::fabs(off) <= 0.01 ? ", as planned"
                                                    : fmt::format(", {:+.1f} % against the plan", 100 * off);
  const std::string drops =
      link.dropped > 0 ? fmt::format("; {} packets were dropped", grouped(static_cast<int64_t>(link.dropped))) : "";
  const std::string others =
      link.payload_over_planned > 1 + kWorth
          ? fmt::format("; the interface sends {:.2g} times that: others use it too", link.payload_over_planned)
          : "";
  return fmt::format("; {} sends {} a step{}{}{}", first.name(), human_bytes(first.sent), plan, others, drops);
}

// Of the bytes of a step, if gradients were bf16. f64 come back as f32; with a sharded optimizer weights do, in f32.
double bf16_share(const SetupPoint& setup) {
  const double back = setup.sharded > 0 ? 4 : 2;
  return setup.wire == "f32" ? (2 + back) / 8 : setup.wire == "f64" ? (2 + back) / 12 : kUnknown;
}

std::string what_if_text(Verdict& v, const Waits& w, const SetupPoint& setup) {
  const double infinite = w.step - w.exposed;
  v.add("step_infinite_network", infinite, "s").add("speedup_infinite_network", w.step / infinite);
  std::string text = fmt::format("; with an infinitely fast network a step would take {} ({:.3g} times as fast)",
                                 seconds_text(infinite), w.step / infinite);
  if (const double share = bf16_share(setup); share > 0) {
    const double less = infinite + exposed_with_share(w, share);
    v.add("step_bf16", less, "s").add("speedup_bf16", w.step / less);
    text += fmt::format(", with bf16 on the wire {}{} ({:.3g} times)", w.measured ? "" : "at most ", seconds_text(less),
                        w.step / less);
  }
  return text;
}

std::string opening(const std::string& label, const Waits& w) {
  const std::string waiting =
      fmt::format("waiting for the network takes {} of a step ({} of {})", percent_text(w.exposed / w.step),
                  seconds_text(w.exposed), seconds_text(w.step));
  return label == "network_bound" ? "Yes: " + waiting
         : label == "partly"      ? "In part: " + waiting
         : label == "slow_rank"   ? fmt::format("No: {}; ranks wait {} of a step on average for a slower one", waiting,
                                                percent_text(w.others / w.step))
                                  : "No: " + waiting;
}

bool too_little(Verdict& v, const RunData& run, const std::vector<RankClock>& clocks) {
  if (ranks_of(run) <= 1) {
    v.label = "single";
    v.confidence = clocks.empty() ? Confidence::low : Confidence::high;
    v.answer = "No: the run has one rank, so its steps use no network.";
    return true;
  }
  const bool measured = std::any_of(clocks.begin(), clocks.end(), [](const RankClock& c) {
    return c.step > 0 && (c.communication > 0 || c.sent > 0);
  });
  if (!measured) {
    v.answer = "That cannot be said yet: no step with its communication is recorded.";
  }
  return !measured;
}

}  // namespace

double port_speed(double bits_per_second) {
  for (const double speed : {10e6, 100e6, 1e9, 2.5e9, 5e9, 10e9, 25e9, 40e9, 50e9, 100e9, 200e9, 400e9}) {
    if (bits_per_second <= 1.02 * speed) {
      return speed;
    }
  }
  return kUnknown;
}

Verdict network(const RunData& run) {
  Verdict v{.key = "network", .question = "Is the network the bottleneck?", .label = "empty", .answer = ""};
  const std::vector<RankClock> clocks = clocks_of(run);
  if (too_little(v, run, clocks)) {
    return v;
  }
  const Waits w = waits_of(clocks);
  v.label = label_of(w);
  v.confidence = confidence_by(clocks.front().windows.size());
  if (static_cast<int>(clocks.size()) < ranks_of(run)) {
    v.confidence = Confidence::low;  // the ranks that were not read may be the ones that all wait for
  }
  v.add("ranks", ranks_of(run)).add("step", w.step, "s").add("exposed", w.exposed, "s");
  v.add("exposed_share", w.exposed / w.step).add("waiting_for_ranks_share", w.others / w.step);
  v.add("transfer", w.measured ? w.transfer : kUnknown, "s");
  const LinkTraffic link = link_traffic(run, clocks);
  v.answer = opening(v.label, w) + link_text(v, w, link) + bytes_text(v, clocks, link);
  v.answer += w.exposed / w.step >= 0.01 && w.exposed < w.step ? what_if_text(v, w, clocks.front().setup) : "";
  v.answer += ".";
  return v;
}

}  // namespace tandem
