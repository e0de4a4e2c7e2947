// Self-attention of packed sentences: one product for queries, keys and values, the attention itself, and the output
// projection. The rows of qkv's weight [3D, D] are those of q, then k, then v.
#pragma once

#include "nn/linear.h"

namespace tandem::nn {

struct SelfAttention {
  Linear qkv, out;
  int64_t width = 0;

  static SelfAttention make(ParameterLayout& layout, const std::string& name, int64_t width, bool with_bias);

  struct Saved {
    View input;     // [R, D]
    View qkv;       // [R, 3D]
    View mixed;     // [R, D]: the attention's output
    View log_sums;  // M [H, R]; empty outside training
    backend::AttentionShape shape;
  };
  // Stops before the last product, which is left to the caller.
  Saved forward(const Context& context, const View& input, const backend::AttentionShape& shape) const;
  PendingProduct output(const Saved& saved) const { return {out, saved.mixed}; }
  // dinput is written, or added to if `accumulate`.
  void backward(const Context& context, const Saved& saved, const View& dinput, const View& dbranch,
                bool accumulate) const;

  // The three parts of a [R, 3D] matrix.
  View queries(const View& all) const { return all.slice_cols(0, width); }
  View keys(const View& all) const { return all.slice_cols(width, width); }
  View values(const View& all) const { return all.slice_cols(2 * width, width); }
};

}  // namespace tandem::nn
