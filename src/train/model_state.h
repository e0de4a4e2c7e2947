// The parameters of a model in training, with gradients and average, as flat buffers in the backend's memory.
#pragma once

#include <functional>

#include "model/transformer.h"

namespace tandem::train {

class ModelState {
 public:
  // compute: f32 or bf16. With `average`, also allocates the moving average of the weights. Buffers have room up to a
  // multiple of `unit` elements, so that ranks can share them in equal parts.
  ModelState(backend::Backend& backend, const ParameterLayout& layout, DType compute, bool average, int64_t unit = 1);

  View masters() const { return flat(masters_, DType::f32); }
  View gradients() const { return flat(gradients_, DType::f32); }
  View average() const { return average_.data() == nullptr ? View{} : flat(average_, DType::f32); }
  // The bf16 copy, which the optimizer refreshes; empty in f32.
  View copy() const { return copy_.data() == nullptr ? View{} : flat(copy_, DType::bf16); }

  // One of these buffers with all of its room; past the model's own elements it is zero.
  View padded(View flat) const {
    flat.cols = flat.stride = flat.empty() ? 0 : padded_;
    return flat;
  }

  nn::Weights weights() const { return {masters(), copy().empty() ? masters() : copy()}; }

  void refresh_copy();  // call this after the masters were written from outside

  // Calls `use` while weights() gives the moving average, if there is one.
  void with_average(const std::function<void()>& use);

 private:
  void exchange_average();
  View flat(const Buffer& buffer, DType dtype) const { return buffer.view(dtype, 1, size_); }

  backend::Backend& backend_;
  int64_t size_, padded_;
  Buffer masters_, gradients_, average_, copy_;
};

}  // namespace tandem::train
