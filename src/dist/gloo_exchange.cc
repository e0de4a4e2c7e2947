#include "dist/gloo_exchange.h"

#include <algorithm>

#include "dist/rank_sum.h"

namespace tandem {
namespace {

constexpr int64_t kPieceBytes = 1 << 18;
constexpr int64_t kWindow = 12;  // pieces of one peer that are received ahead of the additions

int64_t piece_length(DType type) { return kPieceBytes / static_cast<int64_t>(size_of(type)); }

int64_t pieces_of(const Shard& shard, DType type) {
  return (shard.count + piece_length(type) - 1) / piece_length(type);
}

// In bytes from the beginning of what the shard is a part of.
struct Piece {
  size_t offset = 0;
  size_t bytes = 0;
};

Piece piece_of(const Shard& shard, DType type, int64_t index) {
  const int64_t begin = index * piece_length(type);
  const int64_t count = std::min(piece_length(type), shard.count - begin);
  return {(shard.begin + begin) * size_of(type), count * size_of(type)};
}

}  // namespace

// 24 bits of number, 16 of tag, 24 for the piece. Number 0 is the mesh's own.
uint64_t GlooExchange::next_slot(uint64_t tag) {
  exchanges_ = exchanges_ % ((uint64_t{1} << 24) - 1) + 1;
  return exchanges_ << 40 | (tag & 0xFFFF) << 24;
}

GlooExchange::Transfer GlooExchange::start_send(const View& buffer, int peer, Shard shard, uint64_t slot) {
  auto channel = std::make_unique<GlooChannel>(mesh_, peer, buffer.data, buffer.size() * size_of(buffer.dtype));
  for (int64_t i = 0; i < pieces_of(shard, buffer.dtype); ++i) {
    const Piece piece = piece_of(shard, buffer.dtype, i);
    channel->send(slot + i, piece.offset, piece.bytes);
  }
  return {std::move(channel), shard};
}

GlooExchange::Transfer GlooExchange::start_receive(const View& buffer, int peer, Shard shard, uint64_t slot) {
  auto channel = std::make_unique<GlooChannel>(mesh_, peer, buffer.data, buffer.size() * size_of(buffer.dtype));
  for (int64_t i = 0; i < pieces_of(shard, buffer.dtype); ++i) {
    const Piece piece = piece_of(shard, buffer.dtype, i);
    channel->receive(slot + i, piece.offset, piece.bytes);
  }
  return {std::move(channel), shard};
}

void GlooExchange::finish_sends(const std::vector<Transfer>& sends, DType type) {
  for (const Transfer& send : sends) {
    for (int64_t i = 0; i < pieces_of(send.shard, type); ++i) {
      send.channel->wait_sent(piece_of(send.shard, type, i).bytes);
    }
  }
}

void GlooExchange::finish_receives(const std::vector<Transfer>& receives, DType type) {
  for (const Transfer& receive : receives) {
    for (int64_t i = 0; i < pieces_of(receive.shard, type); ++i) {
      receive.channel->wait_received(piece_of(receive.shard, type, i).bytes);
    }
  }
}

void GlooExchange::reduce_scatter(const View& buffer, uint64_t tag) {
  const uint64_t slot = next_slot(tag);
  std::vector<Transfer> sends;
  for (int distance = 1; distance < size_; ++distance) {
    const int peer = above(distance);
    sends.push_back(start_send(buffer, peer, shard_of(buffer.size(), size_, peer), slot));
  }
  receive_and_add(buffer, slot);
  finish_sends(sends, buffer.dtype);
}

void GlooExchange::all_reduce(const View& buffer, uint64_t tag) {
  const uint64_t slot = next_slot(tag), sum_slot = next_slot(tag);
  const Shard own = shard_of(buffer.size(), size_, rank_);
  std::vector<Transfer> receives, sends, sums;
  for (int distance = 1; distance < size_; ++distance) {
    // Into the place of what is sent for it: a peer has no sum before it has all of that.
    const int peer = below(distance);
    receives.push_back(start_receive(buffer, peer, shard_of(buffer.size(), size_, peer), sum_slot));
  }
  for (int distance = 1; distance < size_; ++distance) {
    const int peer = above(distance);
    sends.push_back(start_send(buffer, peer, shard_of(buffer.size(), size_, peer), slot));
    sums.push_back(start_send(buffer, peer, {own.begin, 0}, sum_slot));
    sums.back().shard = own;
  }
  receive_and_add(buffer, slot, [&](int64_t i) {
    const Piece piece = piece_of(own, buffer.dtype, i);
    for (const Transfer& sum : sums) {
      sum.channel->send(sum_slot + i, piece.offset, piece.bytes);
    }
  });
  finish_receives(receives, buffer.dtype);
  finish_sends(sends, buffer.dtype);
  finish_sends(sums, buffer.dtype);
}

// Pieces of this rank's shard from all peers, into a ring of kWindow pieces a peer; a piece that all have sent is added
// to our own, in the order of ranks, while the next ones arrive.
void GlooExchange::receive_and_add(const View& buffer, uint64_t slot, const std::function<void(int64_t)>& summed) {
  const DType type = buffer.dtype;
  const Shard own = shard_of(buffer.size(), size_, rank_);
  const int64_t pieces = pieces_of(own, type);
  if (pieces == 0) {
    return;
  }
  const size_t stride = piece_of(own, type, 0).bytes;  // the largest
  const size_t ring = stride * std::min(kWindow, pieces);
  staging_.resize(std::max(staging_.size(), ring * size_));
  std::vector<std::unique_ptr<GlooChannel>> channels(size_);
  const auto receive_from_all = [&](int64_t i) {
    for (int distance = 1; distance < size_ && i < pieces; ++distance) {
      channels[below(distance)]->receive(slot + i, i % kWindow * stride, piece_of(own, type, i).bytes);
    }
  };
  for (int distance = 1; distance < size_; ++distance) {
    const int peer = below(distance);
    channels[peer] = std::make_unique<GlooChannel>(mesh_, peer, staging_.data() + ring * peer, ring);
  }
  for (int64_t i = 0; i < kWindow; ++i) {
    receive_from_all(i);
  }
  std::vector<const void*> parts(size_);
  for (int64_t i = 0; i < pieces; ++i) {
    const Piece piece = piece_of(own, type, i);
    void* const sum = static_cast<std::byte*>(buffer.data) + piece.offset;
    for (int peer = 0; peer < size_; ++peer) {
      parts[peer] = peer == rank_ ? sum : staging_.data() + ring * peer + i % kWindow * stride;
      if (peer != rank_) {
        channels[peer]->wait_received(piece.bytes);
      }
    }
    sum_in_order(sum, parts, static_cast<int64_t>(piece.bytes / size_of(type)), type);
    if (summed) {
      summed(i);
    }
    receive_from_all(i + kWindow);
  }
}

void GlooExchange::all_gather(const View& buffer, uint64_t tag, int except) {
  const uint64_t slot = next_slot(tag);
  std::vector<Transfer> receives;
  std::vector<Transfer> sends;
  for (int distance = 1; distance < size_ && rank_ != except; ++distance) {
    const int peer = below(distance);
    receives.push_back(start_receive(buffer, peer, shard_of(buffer.size(), size_, peer), slot));
  }
  for (int distance = 1; distance < size_; ++distance) {
    if (above(distance) != except) {
      sends.push_back(start_send(buffer, above(distance), shard_of(buffer.size(), size_, rank_), slot));
    }
  }
  finish_receives(receives, buffer.dtype);
  finish_sends(sends, buffer.dtype);
}

void GlooExchange::scatter(const View& buffer, uint64_t tag, int root) {
  const uint64_t slot = next_slot(tag);
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
  if (rank_ != root) {
    receives.push_back(start_receive(buffer, root, shard_of(buffer.size(), size_, rank_), slot));
  }
  for (int distance = 1; distance < size_ && rank_ == root; ++distance) {
    const int peer = above(distance);
    sends.push_back(start_send(buffer, peer, shard_of(buffer.size(), size_, peer), slot));
  }
  finish_receives(receives, buffer.dtype);
  finish_sends(sends, buffer.dtype);
}

}  // namespace tandem
