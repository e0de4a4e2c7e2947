// Tokens to vectors: x = dropout(table[token] * sqrt(D) + positions[position]).
#pragma once

#include <vector>

#include "nn/context.h"

namespace tandem::nn {

struct Embedding {
  ParameterLayout::Id table = -1;  // [V, D]; several embeddings and the output projection may share it

  // tokens, position i32 [1, R]; positions M [longest, D]; x C [R, D].
  void forward(const Context& context, const View& x, const View& tokens, const View& position, const View& positions,
               const backend::Dropout& dropout) const;
  // Adds to the rows of dtable M [n, D] that order.ids name: the table's gradient, or a part of it.
  static void backward(const Context& context, const View& dtable, const View& dx, const backend::TokenOrder& order,
                       const backend::Dropout& dropout);
};

// Sinusoid halves, f64 row-major [length, width]: row p is [sin(p * r_k) | cos(p * r_k)], k = 0..width/2 - 1, with
// r_k = 10000^(-k / (width/2 - 1)).
std::vector<double> sinusoid_positions(int64_t length, int64_t width);

}  // namespace tandem::nn
