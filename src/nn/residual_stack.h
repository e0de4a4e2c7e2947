// A stack of sublayers around a residual stream, pre-norm or post-norm.
//
//   pre-norm:  x + dropout(f(LN(x))) for each sublayer, and a last LN after the stack
//   post-norm: LN(x + dropout(f(x))) for each sublayer
//
// Either way each add is done in the norm that follows it, so that the stream is read and written once per sublayer.
// The stack does not know its sublayers: the caller gives them as a function of their number.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/linear.h"
#include "nn/residual_norm.h"

namespace tandem::nn {

class ResidualStack {
 public:
  ResidualStack(int64_t width, bool pre_norm, float dropout, Side side)
      : width_(width), pre_norm_(pre_norm), rate_(dropout), side_(side) {}

  // Adds the next sublayer's norm, parameters NAME.gamma and NAME.beta; `place` is its output's dropout place.
  void add_sublayer(ParameterLayout& layout, const std::string& name, uint32_t place);
  // The last sublayer added ends with this product. The gradient of its bias, the column sums of dbranch, is then
  // computed by the norm, which reads and writes dbranch anyway, and not by the product's backward.
  void sum_bias_of(Linear& output);
  // Call this after the last sublayer: it adds the norm that ends a pre-norm stack.
  void finish(ParameterLayout& layout, const std::string& name);

  int sublayers() const { return static_cast<int>(places_.size()); }

  // A sublayer's backward pass: writes dinput, or adds to it if `accumulate`.
  using Backward =
      std::function<void(const Context& context, const View& dinput, const View& dbranch, bool accumulate)>;
  // What a sublayer's forward pass leaves to the stack.
  struct Branch {
    PendingProduct last;     // the stack computes it together with the add and the norm that follow
    Backward backward = {};  // needed only if there is a backward pass
  };
  using Sublayer = std::function<Branch(int i, const View& input)>;

  struct Saved {
    std::vector<ResidualNorm::Saved> norms;
    std::vector<Backward> sublayers;

    const View& output() const { return norms.back().normed; }
  };
  Saved forward(const Context& context, const View& x, const Sublayer& sublayer) const;

  // Overwrites doutput; returns the gradient of x, which lies in doutput or in the arena.
  View backward(const Context& context, const Saved& saved, const View& doutput) const;

 private:
  int64_t width_;
  bool pre_norm_;
  float rate_;
  Side side_;
  std::vector<uint32_t> places_;     // each sublayer's dropout place
  std::vector<Linear> outputs_;      // each sublayer's last product, if its bias is summed here
  std::vector<ResidualNorm> norms_;  // one norm per sublayer, and the last one of a pre-norm stack
};

}  // namespace tandem::nn
