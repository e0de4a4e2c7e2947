// The message patterns of collectives over a mesh. All functions run on the mesh's thread.
//
// All data goes straight between the two ranks concerned, in pieces of 65,536 elements, so that sending, receiving and
// adding overlap, memory stays bounded, and a timeout is the time without a piece. Each rank begins with the next rank
// up and sends to all; so the ranks never all begin with the same one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dist/gloo_mesh.h"
#include "dist/shard.h"
#include "tensor/view.h"

namespace tandem::dist {

struct GlooPeers {
  GlooMesh& mesh;
  int rank;
  int size;

  int above(int distance) const { return (rank + distance) % size; }
  int below(int distance) const { return (rank + size - distance) % size; }
};

// Bytes from the beginning of the buffer that the shard is a part of.
struct Piece {
  size_t offset = 0;
  size_t bytes = 0;
};
int64_t pieces_of(const Shard& shard);
Piece piece_of(const Shard& shard, DType type, int64_t index);

// A shard that is sent to or received from a peer. A message's slot is the transfer's plus the index of its piece.
struct Transfer {
  std::unique_ptr<GlooChannel> channel;
  Shard shard;
};
Transfer start_send(GlooMesh& mesh, const View& buffer, int peer, Shard shard, uint64_t slot);
Transfer start_receive(GlooMesh& mesh, const View& buffer, int peer, Shard shard, uint64_t slot);
void finish_sends(const std::vector<Transfer>& sends, DType type);
// relayed: the peers have the data only after others have done their part. meanwhile() is called after every piece.
void finish_receives(
    const std::vector<Transfer>& receives, DType type, bool relayed = false,
    const std::function<void()>& meanwhile = [] {});

// A collective call, in place, for all ranks together; ranks that make different calls use different slots and do not
// meet. Several may have begun, so that the link stays busy while one waits for the last pieces of its peers.
class GlooCall {
 public:
  virtual ~GlooCall() = default;
  // Starts to send what the peers need and to receive what this rank needs.
  virtual void begin() {}
  virtual void finish(const std::function<void()>& meanwhile) = 0;
};

// Gathers every rank's shard from that rank; `except` (or -1) needs nothing.
class GlooGather final : public GlooCall {
 public:
  GlooGather(const GlooPeers& peers, const View& buffer, uint64_t slot, int except = -1)
      : peers_(peers), buffer_(buffer), slot_(slot), except_(except) {}
  void begin() override;
  void finish(const std::function<void()>& meanwhile) override;

 private:
  const GlooPeers peers_;
  const View buffer_;
  const uint64_t slot_;
  const int except_;
  std::vector<Transfer> receives_, sends_;
};

// Gives every rank its shard from rank `root`.
void scatter(const GlooPeers& peers, const View& buffer, uint64_t slot, int root);

}  // namespace tandem::dist
