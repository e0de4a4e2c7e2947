// Attention of target tokens to their source sentence. Keys and values are computed elsewhere, for all decoder layers
// in one product; here they come in as views of its result.
#pragma once

#include "nn/linear.h"

namespace tandem::nn {

struct CrossAttention {
  Linear q, out;
  int64_t width = 0;

  static CrossAttention make(ParameterLayout& layout, const std::string& name, int64_t width, bool with_bias);

  struct Saved {
    View input;     // [T, D]
    View q;         // [T, D]
    View k, v;      // [S, D], columns of a wider matrix
    View mixed;     // [T, D]: the attention's output
    View log_sums;  // M [H, T]; empty outside training
    backend::AttentionShape shape;
  };
  // Stops before the last product, which is left to the caller.
  Saved forward(const Context& context, const View& input, const View& k, const View& v,
                const backend::AttentionShape& shape) const;
  PendingProduct output(const Saved& saved) const { return {out, saved.mixed}; }
  // dinput is written, or added to if `accumulate`; dk and dv are written.
  void backward(const Context& context, const Saved& saved, const View& dinput, const View& dk, const View& dv,
                const View& dbranch, bool accumulate) const;
};

}  // namespace tandem::nn
