// The exchange of gradients: what ranks wait for, what the links carry, and which rank is the slowest.
#pragma once

#include <string>
#include <vector>

#include "observe/run_reader.h"
#include "observe/verdicts/statistics.h"
#include "observe/verdicts/verdict.h"

namespace tandem::observe {

// Where the time, bytes and arithmetic of a rank's steps went, since the run was last started: another start may be on
// other machines.
struct RankClock {
  int rank = 0;
  SetupPoint setup{};
  std::vector<TrainPoint> windows{};  // the first left out if there are 5: it has the warm-up
  TrainPoint sum{};                   // of the windows
  ProbePoint probe{};                 // of all time since the start

  std::string name() const;                                                          // "rank 3 on gpu2"
  double mean(double TrainPoint::*member) const { return sum.*member / sum.steps; }  // of a step
  double step() const { return sum.step_seconds() / sum.steps; }
  double own() const { return mean(&TrainPoint::compute_seconds) + mean(&TrainPoint::data_seconds); }  // by itself
  double wall() const { return step() * sum.steps + sum.pause_seconds(); }                // seconds of all windows
  double rate() const { return step() > 0 ? sum.flops / sum.steps / step() : kUnknown; }  // FLOP/s within steps
};

// Ranks with at least one step, rising.
std::vector<RankClock> clocks_of(const RunData& run);

// As the setup records say, or as many as there are metrics of.
int ranks_of(const RunData& run);

// Probes of the rank, since its last start, as one point.
ProbePoint probed(const RankMetrics& metrics);
// The same, of stretches of time that were all steps: neither starting, validation nor checkpoint. All if such are few.
ProbePoint probed_in_steps(const RankMetrics& metrics);

// Where ranks wait, in seconds of a mean step. What the rank that computes longest waits is the network's doing; what
// the others wait beyond that is for that rank.
struct Waits {
  double step = 0;
  double compute = 0, data = 0;  // of the rank that the others wait for
  double exposed = 0;            // for the network: what that rank waits
  double others = 0;             // for slower ranks: what the ranks wait beyond it, on average
  double transfer = 0;           // that transfers take, hidden or not; at least `exposed`
  bool measured = false;         // transfer is measured

  double exposed_share() const { return exposed / step; }
  double others_share() const { return others / step; }
  double step_without_network() const { return step - exposed; }
  // With a share of the bytes: what was hidden behind compute still is.
  double step_with_share(double share) const;
};

// What the busiest host's link carried for the run.
struct LinkTraffic {
  double bytes_per_second = kUnknown;  // the busier direction, within steps, of the busiest host
  bool with_headers = false;           // as the interface counts, not the ranks
  int ranks = 1;                       // that share the interface
  bool one_host = false;               // all ranks are on it
  double stated_bits = kUnknown;       // its driver's speed
  double dropped = 0;                  // packets, all hosts
  // Sent by the interface without headers, over what the plan says, if each rank has a host of its own.
  double payload_over_planned = kUnknown;

  double stated_share() const { return 8 * bytes_per_second / stated_bits; }
};

// How step time, wait and bytes of the first rank's windows go together.
struct WaitAndStep {
  size_t windows = 0;
  double bytes_spread = kUnknown;      // of a step's bytes, relative
  double correlation = kUnknown;       // of wait and step time; NaN: one of them does not vary
  double rate_correlation = kUnknown;  // of bytes a second and step time
  LineFit fit{};                       // step time over wait, if they vary
};

// The rank that takes longest by itself, against the others' median.
struct SlowestRank {
  std::string name;
  int rank = -1;
  size_t windows = 0;
  double step = 0, own = 0, others = 0;  // seconds of a step
  double noise = 0;                      // standard error of own - others
  int alike = 0;                         // ranks nearer to it than to the others, itself counted
  double lately = 0;                     // own - others in the newest third of the windows
  double data = 0;                       // seconds that it waits longer for data
  double throttled = kUnknown;           // share of time
  double clock_mhz = kUnknown, others_mhz = kUnknown;

  double excess() const { return own - others; }
};

struct Exchange {
  int ranks = 1;                    // of the run
  std::vector<RankClock> clocks{};  // of the ranks whose steps were read
  size_t fewest_windows = 0;        // of these ranks
  Waits waits{};                    // if there is one
  LinkTraffic link{};               //
  WaitAndStep together{};           //
  SlowestRank slowest{};            // if there are two

  bool all_read() const { return static_cast<int>(clocks.size()) >= ranks; }
  bool measured() const;         // a step with its communication was
  double transfer_rate() const;  // bytes a second while transferring
  double sent_over_planned() const;
  double bf16_step() const;    // seconds of a step if gradients travelled as bf16; NaN: they do
  bool worth_what_if() const;  // the wait is large enough to ask what a step would be without it
};
Exchange exchange_of(const RunData& run);

// The speed that the link is known to have, in bits a second: it is full at what its driver states, or moves what a
// usual port does. NaN: neither.
bool link_is_full(const Exchange& exchange);
double port_of(const Exchange& exchange);

// Speed of the slowest usual port that could move this much; NaN beyond 400 Gbit/s.
double port_speed(double bits_per_second);

// Is the network the bottleneck? By the time that steps wait for it, never by megabytes a second.
// Labels: network_bound (waiting for the network is the largest part of a step), partly (a tenth of a step or more),
// no, slow_rank (ranks wait, but for another rank), single (one rank: there is no network), empty.
Verdict network(const Exchange& exchange);

// How do step time and network go together? Every step sends the same bytes, so megabytes a second are bytes over step
// time: more of them are the result of faster steps. Whether the network limits is seen in the time that steps wait.
// Labels: network_sets_the_pace (a tenth of a step or more waits for the network), steps_set_the_rate, too_early (fewer
// than 5 windows), single, empty.
Verdict step_and_network(const Exchange& exchange);

// Does one rank hold up the others?
// Labels: even, slow_rank (a tenth of a step or more is lost to it, beyond noise), too_early (fewer than 3 windows),
// single, empty.
Verdict slow_rank(const Exchange& exchange);

constexpr size_t kFewestWindows = 3;          // to know a rank's noise
constexpr size_t kFewestWindowsTogether = 5;  // to see how two quantities go together

}  // namespace tandem::observe
