// The numbers of the model's dropouts. A mask is a function of its place, so these numbers are part of what a run
// computes: changing them changes every run.
//
//   0, 1                 source and target embedding
//   2 + i * (2H + 4)     first number of layer i; encoder layers count from 0, decoder layers continue after them:
//     + 0 .. H - 1       self-attention weights, one number for each head
//     + H .. 2H - 1      cross-attention weights (decoder)
//     + 2H               self-attention output
//     + 2H + 1           cross-attention output (decoder)
//     + 2H + 2           activation inside the feed-forward
//     + 2H + 3           feed-forward output
#pragma once

#include <cstdint>

#include "core/side.h"

namespace tandem::model {

constexpr uint32_t embedding_place(Side side) { return side == Side::source ? 0 : 1; }

struct LayerPlaces {
  uint32_t self_weights, cross_weights, self_output, cross_output, activation, feed_forward_output;
};

constexpr LayerPlaces layer_places(int heads, int layer) {
  const auto h = static_cast<uint32_t>(heads);
  const uint32_t first = 2 + static_cast<uint32_t>(layer) * (2 * h + 4);
  return {first, first + h, first + 2 * h, first + 2 * h + 1, first + 2 * h + 2, first + 2 * h + 3};
}

}  // namespace tandem::model
