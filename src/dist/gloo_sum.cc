#include "dist/gloo_sum.h"

#include <algorithm>
#include <utility>

#include "dist/rank_sum.h"

namespace tandem {
namespace {

constexpr int64_t kWindow = 12;  // pieces of one peer that are received ahead of the additions

}  // namespace

GlooSum::GlooSum(const GlooPeers& peers, GlooStaging& staging, const View& buffer, bool everywhere, uint64_t slot,
                 uint64_t sum_slot)
    : peers_(peers),
      free_staging_(staging),
      buffer_(buffer),
      everywhere_(everywhere),
      slot_(slot),
      sum_slot_(sum_slot),
      own_(shard_of(buffer.size(), peers.size, peers.rank)),
      pieces_(pieces_of(own_, buffer.dtype)) {}

GlooSum::~GlooSum() {
  values_.clear();  // nothing arrives in the staging after this
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
  for (int distance = 1; distance < peers_.size && everywhere_; ++distance) {
    // Into the place of what is sent for it: a peer has no sum before it has all of that.
    const int peer = peers_.below(distance);
    receives_.push_back(
        start_receive(peers_.mesh, buffer_, peer, shard_of(buffer_.size(), peers_.size, peer), sum_slot_));
  }
  for (int distance = 1; distance < peers_.size; ++distance) {
    const int peer = peers_.above(distance);
    sends_.push_back(start_send(peers_.mesh, buffer_, peer, shard_of(buffer_.size(), peers_.size, peer), slot_));
    if (everywhere_) {
      sums_.push_back(start_send(peers_.mesh, buffer_, peer, {own_.begin, 0}, sum_slot_));
      sums_.back().shard = own_;
    }
  }
}

void GlooSum::take_staging() {
  if (!free_staging_.empty()) {
    staging_ = std::move(free_staging_.back());
    free_staging_.pop_back();
  }
  stride_ = piece_of(own_, buffer_.dtype, 0).bytes;  // the largest
  ring_ = stride_ * std::min(kWindow, pieces_);
  staging_.resize(std::max(staging_.size(), ring_ * peers_.size));
  values_.resize(peers_.size);
  for (int distance = 1; distance < peers_.size; ++distance) {
    const int peer = peers_.below(distance);
    values_[peer] = std::make_unique<GlooChannel>(peers_.mesh, peer, staging_.data() + ring_ * peer, ring_);
  }
}

void GlooSum::receive_from_all(int64_t piece) {
  for (int distance = 1; distance < peers_.size && piece < pieces_; ++distance) {
    values_[peers_.below(distance)]->receive(slot_ + piece, piece % kWindow * stride_,
                                             piece_of(own_, buffer_.dtype, piece).bytes);
  }
}

// A piece that all have sent is added to our own, in the order of ranks, while the next ones arrive; its sum is on its
// way to the peers while the next piece is added up.
void GlooSum::add_up(int64_t piece) {
  const auto [offset, bytes] = piece_of(own_, buffer_.dtype, piece);
  void* const sum = static_cast<std::byte*>(buffer_.data) + offset;
  std::vector<const void*> parts(peers_.size);
  for (int peer = 0; peer < peers_.size; ++peer) {
    parts[peer] = peer == peers_.rank ? sum : staging_.data() + ring_ * peer + piece % kWindow * stride_;
    if (peer != peers_.rank) {
      values_[peer]->wait_received(bytes);
    }
  }
  sum_in_order(sum, parts, static_cast<int64_t>(bytes / size_of(buffer_.dtype)), buffer_.dtype);
  for (const Transfer& transfer : sums_) {
    transfer.channel->send(sum_slot_ + piece, offset, bytes);
  }
  receive_from_all(piece + kWindow);
}

void GlooSum::finish(const std::function<void()>& meanwhile) {
  for (int64_t i = 0; i < pieces_; ++i) {
    add_up(i);
    meanwhile();
  }
  finish_receives(receives_, buffer_.dtype, true, meanwhile);
  finish_sends(sends_, buffer_.dtype);
  finish_sends(sums_, buffer_.dtype);
}

}  // namespace tandem
