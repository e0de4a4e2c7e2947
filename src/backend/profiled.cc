#include "backend/profiled.h"

#include <algorithm>

#include "core/stopwatch.h"

namespace tandem::backend {

namespace {

constexpr int kRepeats = 10;

std::vector<int32_t> numbers_of(Backend& backend, const ConstView& view) {
  std::vector<int32_t> numbers(static_cast<size_t>(view.size()));
  backend.download(numbers.data(), view);
  return numbers;
}

// Pairs of a query and a key that it sees, over all sentences.
double pairs_of(Backend& backend, const AttentionShape& shape) {
  const std::vector<int32_t> queries = numbers_of(backend, shape.query_starts);
  const std::vector<int32_t> keys = numbers_of(backend, shape.key_starts);
  double pairs = 0;
  for (size_t i = 0; i + 1 < queries.size(); ++i) {
    pairs += static_cast<double>(queries[i + 1] - queries[i]) * static_cast<double>(keys[i + 1] - keys[i]);
  }
  return shape.causal ? pairs / 2 : pairs;
}

op::Cost cost_of(Backend& backend, const op::Any& any) {
  return std::visit(
      [&]<class Op>(const Op& op) {
        op::Cost cost = op.cost();
        if constexpr (requires { op.shape.query_starts; }) {
          cost.flops += cost.flops_a_pair * pairs_of(backend, op.shape);
        }
        return cost;
      },
      any);
}

}  // namespace

void ProfiledBackend::run(const op::Any& op) {
  const op::Cost cost = cost_of(inner_, op);
  inner_.run(op);
  inner_.wait();
  const Stopwatch watch;
  for (int i = 0; i < kRepeats; ++i) {
    inner_.run(op);
  }
  inner_.wait();
  OpProfile& profile = profiles_[cost.label];
  profile.name = cost.label;
  ++profile.calls;
  profile.seconds += watch.seconds() / kRepeats;
  profile.bytes += cost.bytes;
  profile.flops += cost.flops;
}

std::vector<OpProfile> ProfiledBackend::profile() const {
  std::vector<OpProfile> all;
  for (const auto& [name, profile] : profiles_) {
    all.push_back(profile);
  }
  std::sort(all.begin(), all.end(), [](const OpProfile& a, const OpProfile& b) { return a.seconds > b.seconds; });
  return all;
}

}  // namespace tandem::backend
