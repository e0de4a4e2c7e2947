// The message patterns of collectives over a mesh.
//
// All data goes straight between the two ranks concerned, in pieces of 65,536 elements, so that sending, receiving and
// adding overlap, memory stays bounded, and a timeout is the time without a piece. Each rank begins with the next rank
// up and sends to all; so the ranks never all begin with the same one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dist/communicator.h"
#include "dist/gloo_mesh.h"

namespace tandem::dist {

// A collective call, in place, for all ranks together; ranks that make different calls use different slots and do not
// meet. Several may have begun, so that the link stays busy while one waits for the last pieces of its peers. All
// functions run on the mesh's thread.
class GlooCall {
 public:
  virtual ~GlooCall() = default;
  // Starts to send what the peers need and to receive what this rank needs.
  virtual void begin() {}
  // meanwhile() is called after every piece.
  virtual void finish(const std::function<void()>& meanwhile) = 0;
};

// Memory for pieces from peers, reused by later sums.
using GlooStaging = std::vector<std::vector<std::byte>>;

// The call's messages are sent in the slots from `slot` and, if it has two phases, `second_slot`.
std::unique_ptr<GlooCall> make_gloo_call(GlooMesh& mesh, GlooStaging& staging, const Collective& call, uint64_t slot,
                                         uint64_t second_slot);

}  // namespace tandem::dist
