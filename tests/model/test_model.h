// A small Transformer on the CPU backend with random weights, and packed batches for it.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "compare.h"
#include "model/transformer.h"

namespace tandem::testing {

inline std::vector<double> to_doubles(const View& view) {
  std::vector<double> values;
  for (int64_t r = 0; r < view.rows; ++r) {
    for (int64_t c = 0; c < view.cols; ++c) {
      const int64_t i = r * view.stride + c;
      values.push_back(view.dtype == DType::f64   ? view.host<double>()[i]
                       : view.dtype == DType::f32 ? static_cast<double>(view.host<float>()[i])
                                                  : static_cast<double>(static_cast<float>(view.host<bf16>()[i])));
    }
  }
  return values;
}

// Of a contiguous view of masters.
inline void assign(const View& view, std::span<const double> values) {
  require(static_cast<size_t>(view.size()) == values.size(), "{} values for {}", values.size(), view.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (view.dtype == DType::f64) {
      view.host<double>()[i] = values[i];
    } else {
      view.host<float>()[i] = static_cast<float>(values[i]);
    }
  }
}

using Sentences = std::vector<std::vector<int32_t>>;

class TestBatch {
 public:
  // Source sentences end with their end mark; bos and eos are added to the targets here.
  TestBatch(const Sentences& source, const Sentences& target) {
    Sentences inputs = target;
    for (std::vector<int32_t>& sentence : inputs) {
      labels_.insert(labels_.end(), sentence.begin(), sentence.end());
      labels_.push_back(1);
      sentence.insert(sentence.begin(), 2);
    }
    pack(source_, source);
    pack(target_, inputs);
  }

  model::Batch view(const backend::StepState* state) {
    return {.source = view(source_), .target = view(target_), .labels = row(labels_), .state = state};
  }

  static View row(std::vector<int32_t>& values) {
    return host_view(values.data(), 1, static_cast<int64_t>(values.size()));
  }

 private:
  struct Packed {
    std::vector<int32_t> tokens, position, starts{0}, rows, ids, id_starts;
    int64_t longest = 0;
  };

  static void pack(Packed& to, const Sentences& sentences) {
    for (const std::vector<int32_t>& sentence : sentences) {
      for (size_t i = 0; i < sentence.size(); ++i) {
        to.tokens.push_back(sentence[i]);
        to.position.push_back(static_cast<int32_t>(i));
      }
      to.starts.push_back(static_cast<int32_t>(to.tokens.size()));
      to.longest = std::max(to.longest, static_cast<int64_t>(sentence.size()));
    }
    to.rows.resize(to.tokens.size());
    std::iota(to.rows.begin(), to.rows.end(), 0);
    const auto token = [&](int32_t row_number) { return to.tokens[static_cast<size_t>(row_number)]; };
    std::stable_sort(to.rows.begin(), to.rows.end(), [&](int32_t a, int32_t b) { return token(a) < token(b); });
    for (size_t i = 0; i < to.rows.size(); ++i) {
      if (i == 0 || token(to.rows[i]) != to.ids.back()) {
        to.ids.push_back(token(to.rows[i]));
        to.id_starts.push_back(static_cast<int32_t>(i));
      }
    }
    to.id_starts.push_back(static_cast<int32_t>(to.rows.size()));
  }

  static model::PackedSide view(Packed& side) {
    return {.tokens = row(side.tokens),
            .position = row(side.position),
            .starts = row(side.starts),
            .longest = side.longest,
            .order = {row(side.rows), row(side.ids), row(side.id_starts)}};
  }

  Packed source_, target_;
  std::vector<int32_t> labels_;
};

// A config that gradient checks can afford, with every dropout on.
inline model::ModelConfig tiny_config() {
  model::ModelConfig config;
  config.source_vocabulary = config.target_vocabulary = 12;
  config.encoder_layers = config.decoder_layers = 2;
  config.width = 16;
  config.heads = 2;
  config.feed_forward = 24;
  config.max_length = 16;
  config.dropout = 0.2F;
  config.attention_dropout = 0.3F;
  config.activation_dropout = 0.25F;
  return config;
}

inline Sentences test_source() { return {{4, 7, 3, 8, 1}, {5, 1}, {9, 4, 4, 10, 6, 3, 1}, {11, 8, 1}}; }
inline Sentences test_target() { return {{5, 6, 4, 8}, {7, 3}, {4, 4, 8, 5, 3, 6, 7}, {}}; }

class TestModel {
 public:
  TestModel(const model::ModelConfig& config, DType compute)
      : backend(backend::make_cpu_backend(1)),
        master(compute == DType::f64 ? DType::f64 : DType::f32),
        model(*backend, config, master),
        arena([this](size_t bytes) { return backend->allocate(bytes); }) {
    weights.masters = flat(master);
    gradients = flat(master);
    randomize();
    weights.compute = compute == DType::bf16 ? flat(DType::bf16) : weights.masters;
    if (compute == DType::bf16) {
      backend->copy(weights.compute, weights.masters);
    }
  }

  View flat(DType dtype) {
    const int64_t size = model.parameters().flat_size();
    memory_.push_back(backend->allocate(static_cast<size_t>(size) * size_of(dtype)));
    const View view = memory_.back().view(dtype, 1, size);
    backend->fill_zero(view);
    return view;
  }

  // Adds to the gradients.
  backend::LossTotals train(TestBatch& batch) {
    backend::LossTotals totals;
    arena.reset();
    model.train(weights, gradients, batch.view(&state), 0.1F, &totals, arena);
    return totals;
  }

  std::unique_ptr<backend::Backend> backend;
  DType master;
  model::Transformer model;
  Arena arena;
  nn::Weights weights;
  View gradients;
  backend::StepState state{.seed = 5, .step = 2, .first_source = 3, .first_target = 4, .loss_scale = 0.0625F};

 private:
  // As training begins, but with norms and biases off their zeros and ones.
  void randomize() {
    const ParameterLayout& layout = model.parameters();
    std::vector<float> values(static_cast<size_t>(layout.flat_size()));
    initialize(host_view(values.data(), 1, layout.flat_size()), layout, 99);
    std::vector<float> noise(values.size());
    fill_random(std::span(noise), 8);
    for (const Parameter& parameter : layout.all()) {
      for (int64_t i = parameter.offset; parameter.is_vector && i < parameter.offset + parameter.size(); ++i) {
        values[static_cast<size_t>(i)] += 0.2F * noise[static_cast<size_t>(i)];
      }
    }
    const std::vector<double> wide(values.begin(), values.end());
    assign(weights.masters, wide);
  }

  std::vector<Buffer> memory_;
};

}  // namespace tandem::testing
