// A sum over the ranks of a mesh.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dist/gloo_exchange.h"

namespace tandem::dist {

// Memory for pieces from peers, reused by later sums.
using GlooStaging = std::vector<std::vector<std::byte>>;

class GlooSum final : public GlooCall {
 public:
  // sums: receives the sums on every rank (all-reduce): the values' own memory, or other memory in f32; empty: each
  // rank gets the sums of its own shard in place (reduce-scatter). The sums are sent in the slots from `sum_slot`, the
  // values in those from `slot`.
  GlooSum(const GlooPeers& peers, GlooStaging& staging, const View& sums, const View& values, uint64_t slot,
          uint64_t sum_slot);
  ~GlooSum() override;
  GlooSum(const GlooSum&) = delete;
  GlooSum& operator=(const GlooSum&) = delete;

  void begin() override;
  void finish(const std::function<void()>& meanwhile) override;

 private:
  void take_staging();
  void receive_from_all(int64_t piece);
  void add_up(int64_t piece);
  void send_sums(int64_t piece);

  const GlooPeers peers_;
  GlooStaging& free_staging_;
  const View sums_, values_;
  const uint64_t slot_, sum_slot_;
  const Shard own_;
  const int64_t pieces_;  // number of pieces in this rank's shard

  std::vector<std::byte> staging_;                      // a ring of pieces for each peer
  size_t stride_ = 0, ring_ = 0;                        // bytes of a piece and of a ring
  std::vector<Transfer> sends_;                         // values to peers
  std::vector<std::unique_ptr<GlooChannel>> arrivals_;  // values from peers, by rank
  std::vector<Transfer> sum_sends_;                     // sums of this rank's shard, to peers
  std::vector<Transfer> receives_;                      // sums from peers
};

}  // namespace tandem::dist
