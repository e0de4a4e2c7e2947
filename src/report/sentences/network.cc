#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/human.h"
#include "report/sentences/sentences.h"

namespace tandem::report {

namespace {

std::string network_opening(const observe::Waits& w) {
  using observe::Bottleneck;
  const std::string waiting =
      fmt::format("waiting for the network takes {} of a step ({} of {})", percent_text(w.exposed_share()),
                  seconds_text(w.exposed), seconds_text(w.step));
  const Bottleneck bottleneck = w.bottleneck();
  if (bottleneck == Bottleneck::slow_rank) {
    return fmt::format("No: {}; ranks wait {} of a step on average for a slower one", waiting,
                       percent_text(w.others_share()));
  }
  return (bottleneck == Bottleneck::network           ? "Yes: "
          : bottleneck == Bottleneck::network_in_part ? "In part: "
                                                      : "No: ") +
         waiting;
}

// ": it is a 100 Mbit port", if the rate while transferring shows it.
std::string port_text(const observe::Exchange& e) {
  const double port = observe::port_of(e);
  const std::string name = std::isfinite(port) ? port_name(port) : "";
  if (!e.link.states_speed()) {
    return name.empty() ? "" : ": it is a " + name;
  }
  return fmt::format("{}, though its driver states {}: something on the way or in the hosts is slower",
                     name.empty() ? "" : ": no more than a " + name, bits_text(e.link.stated_bits));
}

// "; this link moves 12.0 MB/s (96.0 Mbit/s): it is a 100 Mbit port"
std::string link_text(const observe::Exchange& e) {
  const observe::LinkTraffic& link = e.link;
  if (!(link.bytes_per_second > 0)) {
    return "";
  }
  const std::string mean = rate_text(link.bytes_per_second);
  const std::string together = link.ranks > 1 ? fmt::format(" ({} ranks together)", link.ranks) : "";
  const std::string headers = link.with_headers ? " with headers" + together : "";
  const std::string against = link.states_speed()
                                  ? fmt::format(", {} of the {} that its driver states",
                                                percent_text(link.stated_share()), bits_text(link.stated_bits))
                                  : "";
  if (link.one_host) {
    return fmt::format("; all ranks are on one host, so this is the exchange within it and no cable, on average {}{}",
                       mean, headers);
  }
  if (e.waits.bottleneck() != observe::Bottleneck::network) {
    return fmt::format("; on average {}{} go each way{}", mean, headers, against);
  }
  if (observe::link_is_full(e)) {
    return fmt::format("; this link moves {}{}{}: it is full", mean, headers, against);
  }
  return e.waits.measured ? fmt::format("; this link moves {}{}{}", rate_text(e.transfer_rate()), headers, port_text(e))
                          : fmt::format("; on average this link moves {}{}{}", mean, headers, port_text(e));
}

// Bytes a step against the plan, counted by the program and by the interface.
std::string bytes_text(const observe::Exchange& e) {
  const observe::RankClock& first = e.clocks.front();
  const double sent = first.mean(&observe::TrainPoint::sent_bytes), off = e.sent_over_planned() - 1;
  if (!(sent > 0)) {
    return "";
  }
  std::string text = fmt::format("; {} sends {} a step", first.name(), human_bytes(sent));
  if (e.sent_as_planned()) {
    text += ", as planned";
  } else if (!std::isnan(off)) {
    text += fmt::format(", {:+.1f} % against the plan", 100 * off);
  }
  if (e.link.used_by_others()) {
    text += fmt::format("; the interface sends {:.2g} times that: others use it too", e.link.payload_over_planned);
  }
  if (e.link.dropped > 0) {
    text += fmt::format("; {} packets were dropped", grouped(static_cast<int64_t>(e.link.dropped)));
  }
  return text;
}

std::string what_if_text(const observe::Exchange& e) {
  if (!e.worth_what_if()) {
    return "";
  }
  const double infinite = e.waits.step_without_network(), bf16 = e.bf16_step();
  std::string text = fmt::format("; with an infinitely fast network a step would take {} ({:.3g} times as fast)",
                                 seconds_text(infinite), e.waits.step / infinite);
  if (!std::isnan(bf16)) {
    text += fmt::format(", with bf16 on the wire {}{} ({:.3g} times)", e.waits.measured ? "" : "at most ",
                        seconds_text(bf16), e.waits.step / bf16);
  }
  return text;
}

// How a step's time follows its wait.
std::string regression_text(const observe::WaitAndStep& together) {
  if (!std::isfinite(together.correlation)) {
    return "";
  }
  const observe::LineFit& fit = together.fit;
  if (!together.follows()) {
    return fmt::format("; over {} windows the wait varies too little to see the step follow it", together.windows);
  }
  return fmt::format(
      "; over {} windows a second more of waiting comes with {:.2g} s more of step (99 %: {:.2g} to {:.2g}; r = "
      "{:.2f})",
      together.windows, fit.slope, fit.lower, fit.upper, together.correlation);
}

// The cause of a rank's slowness, if it was measured.
std::string cause_text(const observe::SlowestRank& slow) {
  switch (slow.cause()) {
    case observe::SlowCause::data:
      return fmt::format("it waits {} longer for data", seconds_text(slow.data));
    case observe::SlowCause::throttled:
      return fmt::format("its GPU was slowed down for heat or power {} of the time", percent_text(slow.throttled));
    case observe::SlowCause::low_clock:
      return fmt::format("its GPU runs at {:.0f} MHz, the others' at {:.0f}", slow.clock_mhz, slow.others_mhz);
    case observe::SlowCause::compute:
      break;
  }
  return "its compute is slower";
}

std::string slow_text(const observe::SlowestRank& slow) {
  const std::string alike = slow.alike > 1 ? fmt::format(" (and {} more like it)", slow.alike - 1) : "";
  return fmt::format(
      "Yes: {}{} takes {} for its part of a step, the others {}; {}; without {} a step would be {} shorter ({}){}.",
      slow.name, alike, seconds_text(slow.own), seconds_text(slow.others), cause_text(slow),
      slow.alike > 1 ? "them" : "it", seconds_text(slow.excess()), percent_text(slow.excess() / slow.step),
      slow.caught_up() ? "; in the newest third of the steps it was as fast as the others" : "");
}

// No single rank is slow, but each window may have another slowest one.
std::string even_text(const observe::Exchange& e) {
  const observe::SlowestRank& slow = e.slowest;
  const bool in_turn = e.waits.ranks_wait();
  std::string text =
      fmt::format("No{}: the slowest, {}, takes {} for its part of a step, the others {}, a difference of {} of a step",
                  in_turn ? " single one" : "", slow.name, seconds_text(slow.own), seconds_text(slow.others),
                  percent_text(std::max(slow.excess() / slow.step, 0.0)));
  if (in_turn) {
    text += fmt::format("; but ranks wait {} of a step for whichever is slowest at the time",
                        percent_text(e.waits.others_share()));
  }
  text += ".";
  if (!e.all_read()) {
    text += fmt::format(" Of {} ranks {} were read: another may be the one.", e.ranks, e.clocks.size());
  }
  return text;
}

}  // namespace

std::string network_text(const observe::Exchange& e, const observe::Verdict& v) {
  if (v.label == "single") {
    return "No: the run has one rank, so its steps use no network.";
  }
  if (v.label == "empty") {
    return "That cannot be said yet: no step with its communication is recorded.";
  }
  return network_opening(e.waits) + link_text(e) + bytes_text(e) + what_if_text(e) + ".";
}

std::string step_and_network_text(const observe::Exchange& e, const observe::Verdict& v) {
  if (v.label == "single") {
    return "They do not: the run has one rank, so its steps use no network.";
  }
  if (v.label == "empty") {
    return "That cannot be said yet: no step with its bytes is recorded.";
  }
  if (v.label == "too_early") {
    return fmt::format("That cannot be said yet: it wants {} windows of steps.", observe::kFewestWindowsTogether);
  }
  const observe::RankClock& clock = e.clocks.front();
  const double sent = clock.mean(&observe::TrainPoint::sent_bytes);
  const std::string bytes = human_bytes(sent), exposed = percent_text(e.waits.exposed_share());
  std::string text = fmt::format(
      "Every step sends {} {}, so the rate is only bytes over step time, {} / {} = {}: more MB/s come with faster "
      "steps, they do not cause them; ",
      e.together.same_bytes() ? "the same" : "about", bytes, bytes, seconds_text(clock.step()),
      rate_text(sent / clock.step()));
  text += v.label == "network_sets_the_pace"
              ? fmt::format("here the network sets the pace, as {} of a step waits for it", exposed)
              : fmt::format("the network does not limit, as only {} of a step waits for it", exposed);
  return text + regression_text(e.together) + ".";
}

std::string slow_rank_text(const observe::Exchange& e, const observe::Verdict& v) {
  if (v.label == "single") {
    return "No: the run has one rank.";
  }
  if (v.label == "empty") {
    return "That cannot be said: the metrics of one rank alone were found.";
  }
  if (v.label == "too_early") {
    return fmt::format("That cannot be said yet: noise wants {} windows of steps on each rank.",
                       observe::kFewestWindows);
  }
  return v.label == "slow_rank" ? slow_text(e.slowest) : even_text(e);
}

}  // namespace tandem::report
