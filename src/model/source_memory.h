// The source as the decoder reads it: keys and values of every decoder layer's attention to it, from one product.
#pragma once

#include "model/config.h"
#include "nn/linear.h"

namespace tandem::model {

class SourceMemory {
 public:
  // Parameters decoder.layers.I.cross.kv.*
  SourceMemory(ParameterLayout& layout, const ModelConfig& config);

  // output: the encoder's output, C [S, D]. Returns C [S, L * 2D]: layer l's keys are the D columns from l * 2D, its
  // values those from l * 2D + D.
  View forward(const nn::Context& context, const View& output) const;
  // Writes doutput C [S, D].
  void backward(const nn::Context& context, const View& doutput, const View& dmemory, const View& output) const;

 private:
  nn::Linear product_;
  int64_t cols_;
};

// One layer's columns of the memory or of its gradient.
inline View memory_keys(const View& memory, int layer, int64_t width) {
  return memory.slice_cols(layer * 2 * width, width);
}
inline View memory_values(const View& memory, int layer, int64_t width) {
  return memory.slice_cols(layer * 2 * width + width, width);
}

}  // namespace tandem::model
