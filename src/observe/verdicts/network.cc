#include <algorithm>
#include <cmath>

#include "observe/verdicts/exchange.h"

namespace tandem::observe {

namespace {

// A link counts as full from this share on: TCP moves 84 to 95 % of a port's speed.
constexpr double kFull = 0.7;
// The rate is known well enough to name the port if its two bounds are within this factor.
constexpr double kSure = 1.5;

Verdict of_one_rank(const Exchange& e) {
  return {.label = "single", .confidence = e.clocks.empty() ? Confidence::low : Confidence::high};
}

const char* label_of(Bottleneck bottleneck) {
  return bottleneck == Bottleneck::network           ? "network_bound"
         : bottleneck == Bottleneck::network_in_part ? "partly"
         : bottleneck == Bottleneck::slow_rank       ? "slow_rank"
                                                     : "no";
}

void add_bytes(Verdict& v, const Exchange& e) {
  const RankClock& first = e.clocks.front();
  v.add("sent_per_step", first.mean(&TrainPoint::sent_bytes), "B");
  v.add("received_per_step", first.mean(&TrainPoint::received_bytes), "B");
  v.add("planned_sent_per_step", first.setup.planned_sent_bytes, "B").add("sent_over_planned", e.sent_over_planned());
  v.add("interface_payload_over_planned", e.link.payload_over_planned).add("dropped_packets", e.link.dropped);
}

void add_link(Verdict& v, const Exchange& e) {
  const double rate = e.link.bytes_per_second;
  v.add("rate", rate, "B/s").add("rate_bits", 8 * rate, "bit/s").add("link_bits", e.link.stated_bits, "bit/s");
  v.add("link_share", e.link.stated_share());
  v.add("transfer_rate", e.waits.measured ? e.transfer_rate() : kUnknown, "B/s");
  if (e.waits.bottleneck() == Bottleneck::network && std::isfinite(port_of(e))) {
    v.add("port_bits", port_of(e), "bit/s");
  }
}

void add_what_if(Verdict& v, const Exchange& e) {
  const double infinite = e.waits.step_without_network(), bf16 = e.bf16_step();
  v.add("step_infinite_network", infinite, "s").add("speedup_infinite_network", e.waits.step / infinite);
  if (!std::isnan(bf16)) {
    v.add("step_bf16", bf16, "s").add("speedup_bf16", e.waits.step / bf16);
  }
}

}  // namespace

bool link_is_full(const Exchange& e) {
  return 8 * e.transfer_rate() >= kFull * e.link.stated_bits &&
         8 * e.link.bytes_per_second <= 1.05 * e.link.stated_bits;
}

double port_of(const Exchange& e) {
  const double most = e.transfer_rate(), least = e.waits.measured ? most : e.link.bytes_per_second;
  const double port = port_speed(8 * least);
  const bool shown = least > 0 && !e.link.one_host && !link_is_full(e);
  return shown && most / least < kSure && 8 * most >= kFull * port ? port : kUnknown;
}

double port_speed(double bits_per_second) {
  for (const double speed : {10e6, 100e6, 1e9, 2.5e9, 5e9, 10e9, 25e9, 40e9, 50e9, 100e9, 200e9, 400e9}) {
    if (bits_per_second <= 1.02 * speed) {
      return speed;
    }
  }
  return kUnknown;
}

Verdict network(const Exchange& e) {
  if (e.ranks <= 1) {
    return of_one_rank(e);
  }
  if (!e.measured()) {
    return {.label = "empty"};
  }
  Verdict v{.label = label_of(e.waits.bottleneck()), .confidence = confidence_by(e.clocks.front().windows.size())};
  if (!e.all_read()) {
    v.confidence = Confidence::low;  // a rank that was not read may be the one that all wait for
  }
  v.add("ranks", e.ranks).add("step", e.waits.step, "s").add("exposed", e.waits.exposed, "s");
  v.add("exposed_share", e.waits.exposed_share()).add("waiting_for_ranks_share", e.waits.others_share());
  v.add("transfer", e.waits.measured ? e.waits.transfer : kUnknown, "s");
  add_bytes(v, e);
  add_link(v, e);
  if (e.worth_what_if()) {
    add_what_if(v, e);
  }
  return v;
}

Verdict step_and_network(const Exchange& e) {
  if (e.ranks <= 1) {
    return of_one_rank(e);
  }
  if (e.clocks.empty() || !(e.clocks.front().sum.sent_bytes > 0)) {
    return {.label = "empty"};
  }
  if (e.together.windows < kFewestWindowsTogether) {
    return {.label = "too_early"};
  }
  const RankClock& clock = e.clocks.front();
  const WaitAndStep& together = e.together;
  const double exposed = e.waits.exposed_share(), sent = clock.mean(&TrainPoint::sent_bytes),
               rate = sent / clock.step();
  Verdict v{.label = exposed >= kWorth ? "network_sets_the_pace" : "steps_set_the_rate",
            .confidence = confidence_by(clock.windows.size())};
  v.add("bytes_per_step", sent, "B").add("bytes_per_step_spread", together.bytes_spread).add("rate", rate, "B/s");
  v.add("rate_bits", 8 * rate, "bit/s").add("step", clock.step(), "s").add("exposed_share", exposed);
  v.add("wait_and_step_correlation", together.correlation);
  v.add("rate_and_step_correlation", together.rate_correlation);
  if (std::isfinite(together.correlation)) {
    v.add("step_seconds_per_wait_second", together.fit.slope);
    v.add("slope_low", together.fit.lower).add("slope_high", together.fit.upper);
  }
  return v;
}

Verdict slow_rank(const Exchange& e) {
  if (e.ranks <= 1) {
    return of_one_rank(e);
  }
  if (e.clocks.size() < 2) {
    return {.label = "empty"};
  }
  if (e.fewest_windows < kFewestWindows) {
    return {.label = "too_early"};
  }
  const SlowestRank& slow = e.slowest;
  const double lost = slow.excess() / slow.step;
  const bool beyond = lost >= kWorth && slow.excess() > student_t_995(static_cast<int>(slow.windows) - 1) * slow.noise;
  Verdict v{.label = beyond ? "slow_rank" : "even", .confidence = confidence_by(slow.windows)};
  if (!e.all_read() && !beyond) {
    v.confidence = Confidence::low;  // a rank that was not read may be the slow one
  }
  v.add("slowest_rank", slow.rank).add("slowest_own", slow.own, "s").add("median_own_of_others", slow.others, "s");
  v.add("lost_per_step", slow.excess(), "s").add("lost_share", lost).add("step", slow.step, "s");
  return v;
}

}  // namespace tandem::observe
