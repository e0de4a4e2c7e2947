// Checks a layer's backward pass against central differences, in f64 on the CPU backend, with dropout on.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "compare.h"
#include "nn/context.h"

namespace tandem::testing {

class LayerCheck {
 public:
  ParameterLayout layout;
  backend::StepState state{.seed = 77, .step = 3, .first_source = 11, .first_target = 5, .loss_scale = 0.25F};

  // After the layers are made: random parameters and a pass over them.
  nn::Context context() {
    if (weights_.empty()) {
      weights_.resize(static_cast<size_t>(layout.flat_size()));
      gradients_.resize(weights_.size());
      fill_random(std::span(weights_), 1);
    }
    const View flat = host_view(weights_.data(), 1, layout.flat_size());
    return {.backend = *backend_,
            .arena = arena_,
            .layout = layout,
            .weights = {flat, flat},
            .gradients = host_view(gradients_.data(), 1, layout.flat_size()),
            .state = &state,
            .training = true};
  }

  // Random values that live as long as the check.
  View values(int64_t rows, int64_t cols) {
    kept_.emplace_back(static_cast<size_t>(rows * cols));
    fill_random(std::span(kept_.back()), static_cast<uint32_t>(kept_.size() + 1));
    return host_view(kept_.back().data(), rows, cols);
  }
  View indices(std::vector<int32_t> values) {
    indices_.push_back(std::move(values));
    return host_view(indices_.back().data(), 1, static_cast<int64_t>(indices_.back().size()));
  }

  struct Input {
    const char* name;
    View x, dx;
  };

  // loss() runs the forward pass; `backward` runs forward and backward, adding to the parameters' gradients and
  // writing each input's dx.
  void run(const std::function<double()>& loss, const std::function<void()>& backward,
           const std::vector<Input>& inputs) {
    const auto fresh_loss = [&] {
      arena_.reset();
      return loss();
    };
    context();
    std::fill(gradients_.begin(), gradients_.end(), 0.0);
    arena_.reset();
    backward();
    for (const Parameter& p : layout.all()) {
      const auto first = static_cast<size_t>(p.offset), size = static_cast<size_t>(p.size());
      compare(p.name, std::span(weights_).subspan(first, size), std::span(gradients_).subspan(first, size), fresh_loss);
    }
    for (const Input& input : inputs) {
      const auto size = static_cast<size_t>(input.x.size());
      compare(input.name, std::span(input.x.host<double>(), size), std::span(input.dx.host<double>(), size),
              fresh_loss);
    }
  }

  // The usual loss: sum of output * weights.
  static double weighted_sum(const View& output, const View& weights) {
    double sum = 0;
    for (int64_t r = 0; r < output.rows; ++r) {
      for (int64_t c = 0; c < output.cols; ++c) {
        sum += output.host<double>()[r * output.stride + c] * weights.host<double>()[r * weights.stride + c];
      }
    }
    return sum;
  }

 private:
  static void compare(const std::string& name, std::span<double> x, std::span<double> gradient,
                      const std::function<double()>& loss) {
    std::vector<double> expected(x.size());
    numeric_gradient(std::span(expected), x, loss);
    EXPECT_TRUE(close(gradient, std::span(expected), 1e-7, 1e-6)) << name;
  }

  std::unique_ptr<backend::Backend> backend_ = backend::make_cpu_backend(1);
  Arena arena_{[this](size_t bytes) { return backend_->allocate(bytes); }};
  std::vector<double> weights_, gradients_;
  std::deque<std::vector<double>> kept_;
  std::deque<std::vector<int32_t>> indices_;
};

}  // namespace tandem::testing
