// Residual add, dropout and layer norm as one step: sum = residual + dropout(branch); normed = LN(sum).
#pragma once

#include <string>

#include "nn/linear.h"

namespace tandem::nn {

struct ResidualNorm {
  ParameterLayout::Id gamma = -1, beta = -1;

  // Adds the parameters NAME.gamma and NAME.beta.
  static ResidualNorm make(ParameterLayout& layout, const std::string& name, int64_t width);

  struct Saved {
    View sum;         // [R, D]
    View normed;      // [R, D]
    View statistics;  // M [R, 2]
    backend::Dropout dropout;
  };
  // There is no branch: the sum is the residual itself.
  Saved forward(const Context& context, const View& residual) const;
  // The branch is the product's result; `room` [R, D] is scratch memory that may hold it.
  Saved forward(const Context& context, const View& residual, const PendingProduct& branch, const View& room,
                const backend::Dropout& dropout) const;

  // dresidual may be the memory of dnormed or dsum; dbranch and dsum may be empty. dbias, M [1, D] or empty, is the
  // gradient of a bias that was added to the branch last.
  void backward(const Context& context, const Saved& saved, const View& dresidual, const View& dbranch,
                const View& dnormed, const View& dsum, const View& dbias = {}) const;
};

}  // namespace tandem::nn
