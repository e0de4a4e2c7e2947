#include "dist/gloo_sum.h"

#include <algorithm>
#include <utility>

#include "dist/rank_sum.h"

namespace tandem::dist {
namespace {

constexpr int64_t kWindow = 12;  // pieces of one peer that may arrive before they are added

}  // namespace

GlooSum::GlooSum(const GlooPeers& peers, GlooStaging& staging, const View& sums, const View& values, uint64_t slot,
                 uint64_t sum_slot)
    : peers_(peers),
      free_staging_(staging),
      sums_(sums),
      values_(values),
      slot_(slot),
      sum_slot_(sum_slot),
      own_(shard_of(values.size(), peers.size, peers.rank)),
      pieces_(pieces_of(own_)) {}

GlooSum::~GlooSum() {
  arrivals_.clear();  // nothing arrives in the staging after this
  if (!staging_.empty()) {
    free_staging_.push_back(std::move(staging_));
  }
}

void GlooSum::begin() {
  if (pieces_ > 0) {
    take_staging();
    for (int64_t i = 0; i < kWindow; ++i) {
      receive_from_all(i);
    }
  }
  for (int distance = 1; distance < peers_.size && !sums_.empty(); ++distance) {
    // May overwrite the send buffer: a peer cannot have its sum before it has received all of that.
    const int peer = peers_.below(distance);
    receives_.push_back(start_receive(peers_.mesh, sums_, peer, shard_of(sums_.size(), peers_.size, peer), sum_slot_));
  }
  for (int distance = 1; distance < peers_.size; ++distance) {
    const int peer = peers_.above(distance);
    sends_.push_back(start_send(peers_.mesh, values_, peer, shard_of(values_.size(), peers_.size, peer), slot_));
    if (!sums_.empty()) {
      sum_sends_.push_back(start_send(peers_.mesh, sums_, peer, {own_.begin, 0}, sum_slot_));
      sum_sends_.back().shard = own_;
    }
  }
}

void GlooSum::take_staging() {
  if (!free_staging_.empty()) {
    staging_ = std::move(free_staging_.back());
    free_staging_.pop_back();
  }
  stride_ = piece_of(own_, values_.dtype, 0).bytes;  // the largest piece
  ring_ = stride_ * std::min(kWindow, pieces_);
  staging_.resize(std::max(staging_.size(), ring_ * peers_.size));
  arrivals_.resize(peers_.size);
  for (int distance = 1; distance < peers_.size; ++distance) {
    const int peer = peers_.below(distance);
    arrivals_[peer] = std::make_unique<GlooChannel>(peers_.mesh, peer, staging_.data() + ring_ * peer, ring_);
  }
}

void GlooSum::receive_from_all(int64_t piece) {
  for (int distance = 1; distance < peers_.size && piece < pieces_; ++distance) {
    arrivals_[peers_.below(distance)]->receive(slot_ + piece, piece % kWindow * stride_,
                                               piece_of(own_, values_.dtype, piece).bytes);
  }
}

// Adds the pieces of all ranks in their order while the next ones arrive, and starts to send the sum to the peers.
void GlooSum::add_up(int64_t piece) {
  const auto [offset, bytes] = piece_of(own_, values_.dtype, piece);
  std::byte* const values = static_cast<std::byte*>(values_.data) + offset;
  std::vector<const void*> parts(peers_.size);
  for (int peer = 0; peer < peers_.size; ++peer) {
    parts[peer] = peer == peers_.rank ? values : staging_.data() + ring_ * peer + piece % kWindow * stride_;
    if (peer != peers_.rank) {
      arrivals_[peer]->wait_received(bytes);
    }
  }
  sum_in_order(values, parts, static_cast<int64_t>(bytes / size_of(values_.dtype)), values_.dtype);
  if (!sums_.empty()) {
    send_sums(piece);
  }
  receive_from_all(piece + kWindow);
}

void GlooSum::send_sums(int64_t piece) {
  const auto [offset, bytes] = piece_of(own_, sums_.dtype, piece);
  if (sums_.data != values_.data) {
    const auto first = static_cast<int64_t>(offset / size_of(sums_.dtype));
    const auto count = static_cast<int64_t>(bytes / size_of(sums_.dtype));
    std::copy_n(values_.host<double>() + first, count, sums_.host<float>() + first);
  }
  for (const Transfer& transfer : sum_sends_) {
    transfer.channel->send(sum_slot_ + piece, offset, bytes);
  }
}

void GlooSum::finish(const std::function<void()>& meanwhile) {
  for (int64_t i = 0; i < pieces_; ++i) {
    add_up(i);
    meanwhile();
  }
  finish_receives(receives_, sums_.dtype, true, meanwhile);
  finish_sends(sends_, values_.dtype);
  finish_sends(sum_sends_, sums_.dtype);
}

}  // namespace tandem::dist
