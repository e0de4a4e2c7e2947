#include "preflight/warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/human.h"

namespace tandem::preflight {

namespace {

constexpr double kSlower = 0.05;   // a device slower than the others by more is named
constexpr double kLopsided = 0.7;  // one direction of a link against the other, a link against the fastest
constexpr double kClockOff = 1;    // seconds: logs of two hosts can no longer be laid side by side

std::string host_of(const Measurements& m, int node) {
  const auto found = std::find_if(m.ranks.begin(), m.ranks.end(), [&](const auto& rank) { return rank.node == node; });
  return found == m.ranks.end() ? fmt::format("host {}", node) : found->host;
}

void compare_devices(const Measurements& m, std::vector<std::string>& warnings) {
  std::vector<double> rates;
  for (const RankMeasurements& rank : m.ranks) {
    rates.push_back(rank.product_flops);
  }
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::nth_element(rates.begin(), middle, rates.end());
  for (const RankMeasurements& rank : m.ranks) {
    if (rank.product_flops < (1 - kSlower) * *middle) {
      warnings.push_back(fmt::format("rank {} on {} computes {} slower than the others ({} against {})", rank.rank,
                                     rank.host, percent_text(1 - rank.product_flops / *middle),
                                     flops_text(rank.product_flops), flops_text(*middle)));
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
  for (const RankMeasurements& rank : m.ranks) {
    for (const Link& link : rank.links) {
      fastest = std::max({fastest, link.there, link.back});
    }
  }
  for (const RankMeasurements& rank : m.ranks) {
    for (const Link& link : rank.links) {
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
}

}  // namespace

std::vector<std::string> warnings_of(const Measurements& m) {
  std::vector<std::string> warnings;
  compare_devices(m, warnings);
  compare_links(m, warnings);
  return warnings;
}

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

}  // namespace tandem::preflight
