#include "preflight/links.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/error.h"
#include "preflight/rate.h"

namespace tandem::preflight {

namespace {

constexpr int64_t kPiece = int64_t{1} << 22;  // elements of one message at most
constexpr int kExchanges = 30;

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// By rank of the pair: `root` sends.
double one_way(dist::Communicator& pair, int root, double seconds) {
  std::vector<float> data(kPiece);
  return measure_rate(
             pair, seconds, 16 << 10,
             [&](int64_t elements) {
               std::vector<dist::Handle> handles;
               for (int64_t left = elements; left > 0; left -= kPiece) {
                 handles.push_back(pair.start_broadcast(host_view(data.data(), 1, std::min(left, kPiece)), root));
               }
               for (dist::Handle& handle : handles) {
                 handle.wait();
               }
             }) *
         sizeof(float);
}

// A question and its answer, many times; the quickest says most about the clocks.
void compare_clocks(dist::Communicator& pair, Link& link) {
  link.round_trip = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kExchanges; ++i) {
    double asked = wall_clock(), there = 0;
    const double begin = asked;
    pair.broadcast(host_view(&asked, 1, 1), 0);
    there = wall_clock();
    pair.broadcast(host_view(&there, 1, 1), 1);
    const double end = wall_clock();
    if (end - begin < link.round_trip) {
      link.round_trip = end - begin;
      link.clock_offset = there - (begin + end) / 2;
      link.clock_error = (end - begin) / 2;
    }
  }
}

}  // namespace

std::vector<Link> measure_links(dist::ProcessGroup& group, dist::Communicator& control, double seconds) {
  std::vector<int> first(static_cast<size_t>(group.nodes()), -1);
  for (const dist::RankInfo& member : group.ranks()) {
    int& rank = first[static_cast<size_t>(member.node)];
    rank = rank < 0 ? member.rank : rank;
  }
  const double each = std::clamp(seconds / (group.nodes() * (group.nodes() - 1)), 0.1, 1.0);
  std::vector<Link> links;
  for (int to = 1; to < group.nodes(); ++to) {
    for (int from = 0; from < to; ++from) {
      const std::vector<int> ranks{first[static_cast<size_t>(from)], first[static_cast<size_t>(to)]};
      if (std::find(ranks.begin(), ranks.end(), group.rank()) != ranks.end()) {
        dist::Communicator& pair = group.add_communicator(fmt::format("preflight {} {}", from, to), ranks);
        Link link{.from = from, .to = to};
        compare_clocks(pair, link);
        link.there = one_way(pair, 0, each);
        link.back = one_way(pair, 1, each);
        if (group.rank() == ranks[0]) {
          links.push_back(link);
        }
      }
      control.barrier();
    }
  }
  return links;
}

}  // namespace tandem::preflight
