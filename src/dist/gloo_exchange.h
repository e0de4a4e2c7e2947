// The patterns of messages that collectives over a mesh are made of. All functions run on the mesh's thread.
//
// Everything goes straight between the two ranks concerned, in pieces of 256 KiB, so that sending, receiving and
// adding go on side by side, memory stays bounded, and a timeout is the time without a piece. Each rank begins with the
// next rank up and sends to all; so at no time do all ranks begin with the same one.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dist/gloo_mesh.h"
#include "dist/shard.h"
#include "tensor/view.h"

namespace tandem {

class GlooExchange {
 public:
  GlooExchange(GlooMesh& mesh, int rank, int size) : mesh_(mesh), rank_(rank), size_(size) {}

  // Each for all ranks together, in place. `tag` is of the call: ranks that make different calls do not meet.
  void reduce_scatter(const View& buffer, uint64_t tag);
  // Both in one: a piece's sum is on its way while the next piece is added up.
  void all_reduce(const View& buffer, uint64_t tag);
  // Every rank's shard from that rank; `except` (or -1) needs nothing.
  void all_gather(const View& buffer, uint64_t tag, int except = -1);
  // Every rank's shard from rank `root`.
  void scatter(const View& buffer, uint64_t tag, int root);

 private:
  // A shard on its way to or from a peer.
  struct Transfer {
    std::unique_ptr<GlooChannel> channel;
    Shard shard;
  };

  uint64_t next_slot(uint64_t tag);
  Transfer start_send(const View& buffer, int peer, Shard shard, uint64_t slot);
  Transfer start_receive(const View& buffer, int peer, Shard shard, uint64_t slot);
  static void finish_sends(const std::vector<Transfer>& sends, DType type);
  static void finish_receives(const std::vector<Transfer>& receives, DType type);
  // summed(i): piece i of this rank's shard is complete.
  void receive_and_add(const View& buffer, uint64_t slot, const std::function<void(int64_t)>& summed = {});
  int above(int distance) const { return (rank_ + distance) % size_; }
  int below(int distance) const { return (rank_ + size_ - distance) % size_; }

  GlooMesh& mesh_;
  const int rank_;
  const int size_;
  uint64_t exchanges_ = 0;
  std::vector<std::byte> staging_;  // pieces from peers, to be added
};

}  // namespace tandem
