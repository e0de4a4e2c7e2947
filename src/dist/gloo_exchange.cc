#include "dist/gloo_exchange.h"

#include <algorithm>

namespace tandem::dist {
namespace {

constexpr int64_t kPiece = 1 << 16;  // elements

}  // namespace

int64_t pieces_of(const Shard& shard) { return (shard.count + kPiece - 1) / kPiece; }

Piece piece_of(const Shard& shard, DType type, int64_t index) {
  const int64_t begin = index * kPiece;
  const int64_t count = std::min(kPiece, shard.count - begin);
  return {(shard.begin + begin) * size_of(type), count * size_of(type)};
}

namespace {

using Call = void (GlooChannel::*)(uint64_t slot, size_t offset, size_t bytes);

Transfer start(Call call, GlooMesh& mesh, const View& buffer, int peer, Shard shard, uint64_t slot) {
  auto channel = std::make_unique<GlooChannel>(mesh, peer, buffer.data, buffer.size() * size_of(buffer.dtype));
  for (int64_t i = 0; i < pieces_of(shard); ++i) {
    const Piece piece = piece_of(shard, buffer.dtype, i);
    (channel.get()->*call)(slot + i, piece.offset, piece.bytes);
  }
  return {std::move(channel), shard};
}

}  // namespace

Transfer start_send(GlooMesh& mesh, const View& buffer, int peer, Shard shard, uint64_t slot) {
  return start(&GlooChannel::send, mesh, buffer, peer, shard, slot);
}

Transfer start_receive(GlooMesh& mesh, const View& buffer, int peer, Shard shard, uint64_t slot) {
  return start(&GlooChannel::receive, mesh, buffer, peer, shard, slot);
}

void finish_sends(const std::vector<Transfer>& sends, DType type) {
  for (const Transfer& send : sends) {
    for (int64_t i = 0; i < pieces_of(send.shard); ++i) {
      send.channel->wait_sent(piece_of(send.shard, type, i).bytes);
    }
  }
}

void finish_receives(const std::vector<Transfer>& receives, DType type, bool relayed,
                     const std::function<void()>& meanwhile) {
  for (const Transfer& receive : receives) {
    for (int64_t i = 0; i < pieces_of(receive.shard); ++i) {
      receive.channel->wait_received(piece_of(receive.shard, type, i).bytes, relayed);
      meanwhile();
    }
  }
}

void GlooGather::begin() {
  for (int distance = 1; distance < peers_.size && peers_.rank != except_; ++distance) {
    const int peer = peers_.below(distance);
    receives_.push_back(start_receive(peers_.mesh, buffer_, peer, shard_of(buffer_.size(), peers_.size, peer), slot_));
  }
  const Shard own = shard_of(buffer_.size(), peers_.size, peers_.rank);
  for (int distance = 1; distance < peers_.size; ++distance) {
    if (peers_.above(distance) != except_) {
      sends_.push_back(start_send(peers_.mesh, buffer_, peers_.above(distance), own, slot_));
    }
  }
}

void GlooGather::finish(const std::function<void()>& meanwhile) {
  finish_receives(receives_, buffer_.dtype, false, meanwhile);
  finish_sends(sends_, buffer_.dtype);
}

void scatter(const GlooPeers& peers, const View& buffer, uint64_t slot, int root) {
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
  if (peers.rank != root) {
    const Shard own = shard_of(buffer.size(), peers.size, peers.rank);
    receives.push_back(start_receive(peers.mesh, buffer, root, own, slot));
  }
  for (int distance = 1; distance < peers.size && peers.rank == root; ++distance) {
    const int peer = peers.above(distance);
    sends.push_back(start_send(peers.mesh, buffer, peer, shard_of(buffer.size(), peers.size, peer), slot));
  }
  finish_receives(receives, buffer.dtype);
  finish_sends(sends, buffer.dtype);
}

}  // namespace tandem::dist
