// The position-wise feed-forward: branch = dropout(activation(x in' + b)) out' + b, with hidden width F.
#pragma once

#include "nn/linear.h"

namespace tandem::nn {

struct FeedForward {
  Linear in, out;
  int64_t hidden = 0;
  backend::Activation activation = backend::Activation::relu;

  static FeedForward make(ParameterLayout& layout, const std::string& name, int64_t width, int64_t hidden,
                          backend::Activation activation);

  struct Saved {
    View input;   // [R, D]
    View pre;     // [R, F] before the activation; empty for relu, whose output suffices
    View hidden;  // [R, F] after activation and dropout
    View gate;    // relu in training: one bit for each element of hidden
    backend::Dropout dropout;
  };
  // Stops before the last product, which is left to the caller.
  Saved forward(const Context& context, const View& input, const backend::Dropout& dropout) const;
  PendingProduct output(const Saved& saved) const { return {out, saved.hidden}; }
  // dinput is written, or added to if `accumulate`.
  void backward(const Context& context, const Saved& saved, const View& dinput, const View& dbranch,
                bool accumulate) const;
};

}  // namespace tandem::nn
