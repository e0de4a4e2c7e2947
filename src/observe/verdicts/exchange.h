// The exchange of gradients: what ranks wait for, what the links carry, and which rank is the slowest.
#pragma once

#include <string>
#include <vector>

#include "observe/run_reader.h"
#include "observe/verdicts/statistics.h"
#include "observe/verdicts/verdict.h"

namespace tandem::observe {

// Time, bytes and arithmetic of a rank's steps since the run was last started: another start may be on other machines.
struct RankClock {
  int rank = 0;
  SetupPoint setup{};
  std::vector<TrainPoint> windows{};  // if there are 5 or more, without the first, which has the warm-up
  TrainPoint sum{};                   // sum of the windows
  ProbePoint probe{};                 // all probes since the start, merged

  std::string name() const;                                                          // "rank 3 on gpu2"
  double mean(double TrainPoint::*member) const { return sum.*member / sum.steps; }  // mean per step
  double step() const { return sum.step_seconds() / sum.steps; }
  double own() const { return mean(&TrainPoint::compute_seconds) + mean(&TrainPoint::data_seconds); }  // own work
  double wall() const { return step() * sum.steps + sum.pause_seconds(); }                // seconds of all windows
  double rate() const { return step() > 0 ? sum.flops / sum.steps / step() : kUnknown; }  // FLOP/s within steps
};

// The clocks of all ranks with at least one step, rising.
std::vector<RankClock> clocks_of(const RunData& run);

// Number of ranks in the setup records, or of those with metrics if that is larger.
int ranks_of(const RunData& run);

// The rank's probes since its last start, merged into one point.
ProbePoint probed(const RankMetrics& metrics);
// The same without probes taken during start, validation or checkpoint; all probes if few are left.
ProbePoint probed_in_steps(const RankMetrics& metrics);

enum class Bottleneck : uint8_t { none, slow_rank, network_in_part, network };

// What ranks wait for, in seconds of a mean step. The slowest rank, which waits least, waits only for the network; what
// the others wait beyond that, they wait for that rank.
struct Waits {
  double step = 0;
  double compute = 0, data = 0;  // the slowest rank's
  double exposed = 0;            // waiting for the network: the slowest rank's wait
  double others = 0;             // waiting for slower ranks: what ranks wait beyond `exposed`, on average
  double transfer = 0;           // duration of transfers, hidden or not; at least `exposed`
  bool measured = false;         // transfer is measured

  double exposed_share() const { return exposed / step; }
  double others_share() const { return others / step; }
  bool ranks_wait() const { return others_share() >= kWorth; }  // much, for slower ranks
  Bottleneck bottleneck() const;
  double step_without_network() const { return step - exposed; }
  // Seconds of a step that sends a share of the bytes: what was hidden behind compute still is.
  double step_with_share(double share) const;
};

// What the busiest host's link carried for the run.
struct LinkTraffic {
  double bytes_per_second = kUnknown;  // the busier direction, within steps, of the busiest host
  bool with_headers = false;           // counted by the interface, not by the ranks
  int ranks = 1;                       // ranks that share the interface
  bool one_host = false;               // all ranks are on one host
  double stated_bits = kUnknown;       // bit/s that the interface's driver states
  double dropped = 0;                  // dropped packets of all hosts
  // Bytes that the interface sent without headers, over the planned ones; known if each rank has a host of its own.
  double payload_over_planned = kUnknown;

  double stated_share() const { return 8 * bytes_per_second / stated_bits; }
  bool states_speed() const { return stated_bits > 0; }
  bool used_by_others() const { return payload_over_planned > 1 + kWorth; }
};

// How step time, wait and bytes of the first rank's windows are related.
struct WaitAndStep {
  size_t windows = 0;
  double bytes_spread = kUnknown;      // relative spread of a step's bytes
  double correlation = kUnknown;       // correlation of wait and step time; NaN: one of them does not vary
  double rate_correlation = kUnknown;  // correlation of bytes per second and step time
  LineFit fit{};                       // step time over wait, if they vary

  bool same_bytes() const { return bytes_spread < 0.01; }               // every step sends the same
  bool follows() const { return !(fit.lower <= 0 && fit.upper >= 0); }  // step time follows the wait
};

enum class SlowCause : uint8_t { data, throttled, low_clock, compute };

// The rank whose own work takes longest, and the others' median.
struct SlowestRank {
  std::string name;
  int rank = -1;
  size_t windows = 0;
  double step = 0, own = 0, others = 0;  // seconds per step
  double noise = 0;                      // standard error of own - others
  int alike = 0;                         // ranks nearer to it than to the others, itself included
  double lately = 0;                     // own - others in the newest third of the windows
  double data = 0;                       // seconds that it waits longer for data
  double throttled = kUnknown;           // share of time
  double clock_mhz = kUnknown, others_mhz = kUnknown;

  double excess() const { return own - others; }
  SlowCause cause() const;
  bool caught_up() const { return lately < kWorth / 2 * step; }  // in the newest third of the windows
};

struct Exchange {
  int ranks = 1;                    // ranks of the run
  std::vector<RankClock> clocks{};  // one for each rank whose steps were read
  size_t fewest_windows = 0;        // fewest windows of a clock
  Waits waits{};                    // set if there is a clock, as the next two
  LinkTraffic link{};
  WaitAndStep together{};
  SlowestRank slowest{};  // set if there are two clocks

  bool all_read() const { return static_cast<int>(clocks.size()) >= ranks; }
  bool measured() const;         // a step's communication is recorded
  double transfer_rate() const;  // bytes per second while transferring
  double sent_over_planned() const;
  bool sent_as_planned() const;
  double bf16_step() const;    // seconds of a step if gradients were sent as bf16; NaN: they are
  bool worth_what_if() const;  // the wait is large enough to ask what a step would be without it
};
Exchange exchange_of(const RunData& run);

// Whether the link carries what its driver states; if not, the speed in bit/s of the usual port that its rate shows, or
// NaN.
bool link_is_full(const Exchange& exchange);
double port_of(const Exchange& exchange);

// Speed of the slowest usual port that could move this much; NaN beyond 400 Gbit/s.
double port_speed(double bits_per_second);

// Is the network the bottleneck? Judged by the time that steps wait for it, never by megabytes a second.
// Labels: network_bound (waiting for the network is the largest part of a step), partly (a tenth of a step or more),
// no, slow_rank (ranks wait, but for another rank), single (one rank: there is no network), empty.
Verdict network(const Exchange& exchange);

// How are step time and network related? Every step sends the same bytes, so megabytes a second are bytes over step
// time: more of them are the result of faster steps. The time that steps wait shows whether the network limits.
// Labels: network_sets_the_pace (a tenth of a step or more waits for the network), steps_set_the_rate, too_early (fewer
// than 5 windows), single, empty.
Verdict step_and_network(const Exchange& exchange);

// Does one rank hold up the others?
// Labels: even, slow_rank (a tenth of a step or more is lost to it, beyond noise), too_early (fewer than 3 windows),
// single, empty.
Verdict slow_rank(const Exchange& exchange);

constexpr size_t kFewestWindows = 3;          // windows needed to know a rank's noise
constexpr size_t kFewestWindowsTogether = 5;  // windows needed to relate two quantities

}  // namespace tandem::observe
