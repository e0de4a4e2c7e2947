#include "observe/verdicts/waits.h"

#include <algorithm>
#include <map>

namespace tandem {

namespace {

TrainPoint mean_window(const RankClock& clock) {
  TrainPoint point;
  point.steps = clock.steps;
  point.compute_seconds = clock.compute * clock.steps;
  point.communication_seconds = clock.communication * clock.steps;
  point.transfer_seconds = clock.transfer * clock.steps;
  point.data_seconds = clock.data * clock.steps;
  point.other_seconds = (clock.step - clock.compute - clock.communication - clock.data) * clock.steps;
  return point;
}

// The same steps of all ranks, in sums.
class Sum {
 public:
  void add(const std::vector<TrainPoint>& ranks) {
    const auto by_wait = [](const TrainPoint& a, const TrainPoint& b) {
      return a.communication_seconds < b.communication_seconds;
    };
    const TrainPoint& slowest = *std::min_element(ranks.begin(), ranks.end(), by_wait);
    double transfer = slowest.transfer_seconds;
    for (const TrainPoint& rank : ranks) {
      waiting_ += rank.communication_seconds / static_cast<double>(ranks.size());
      transfer = std::min(transfer, rank.transfer_seconds);
    }
    steps_ += slowest.steps;
    w_.step += slowest.step_seconds();
    w_.compute += slowest.compute_seconds;
    w_.data += slowest.data_seconds;
    w_.exposed += slowest.communication_seconds;
    w_.transfer += transfer;
  }

  double steps() const { return steps_; }

  Waits mean() const {
    Waits w = w_;
    w.others = std::max(waiting_ - w.exposed, 0.0);
    for (double* sum : {&w.step, &w.compute, &w.data, &w.exposed, &w.others, &w.transfer}) {
      *sum /= steps_;
    }
    w.measured = w.transfer >= w.exposed && w.transfer > 0;
    w.transfer = w.measured ? w.transfer : w.exposed;
    return w;
  }

 private:
  Waits w_;
  double steps_ = 0, waiting_ = 0;
};

}  // namespace

Waits waits_of(const std::vector<RankClock>& clocks) {
  std::map<int64_t, std::vector<TrainPoint>> windows;
  for (const RankClock& clock : clocks) {
    for (const TrainPoint& point : clock.windows) {
      windows[point.step].push_back(point);
    }
  }
  Sum matched, means;
  for (const auto& [step, ranks] : windows) {
    const auto same = [&, steps = ranks.front().steps](const TrainPoint& point) { return point.steps == steps; };
    if (ranks.size() == clocks.size() && std::all_of(ranks.begin(), ranks.end(), same)) {
      matched.add(ranks);
    }
  }
  std::vector<TrainPoint> by_means;
  by_means.reserve(clocks.size());
  for (const RankClock& clock : clocks) {
    by_means.push_back(mean_window(clock));
  }
  means.add(by_means);
  return matched.steps() >= means.steps() / 2 ? matched.mean() : means.mean();
}

}  // namespace tandem
