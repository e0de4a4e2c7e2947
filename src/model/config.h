// The model's config. Two models with equal configs have the same parameters in the same order.
#pragma once

#include <cstdint>
#include <string>

#include "backend/backend.h"

namespace tandem::model {

enum class NormPlace : uint8_t { pre, post };

// Whether source embedding, target embedding and output projection are one matrix.
enum class Tie : uint8_t {
  all,     // one matrix for all three (needs a joint vocabulary)
  output,  // target embedding = output projection; source has its own
  none,    // three matrices
};

struct ModelConfig {
  int64_t source_vocabulary = 0;
  int64_t target_vocabulary = 0;
  int encoder_layers = 6;
  int decoder_layers = 6;
  int64_t width = 512;          // d
  int heads = 8;                // width must be a multiple of heads
  int64_t feed_forward = 2048;  // f
  NormPlace norm = NormPlace::pre;
  backend::Activation activation = backend::Activation::relu;
  Tie tie = Tie::all;
  bool attention_bias = false;
  int64_t max_length = 256;  // longest sentence in pieces, the end mark included

  // Dropout rates belong to training, not to the model itself.
  float dropout = 0.1F;             // embeddings and sublayer outputs
  float attention_dropout = 0.1F;   // attention weights
  float activation_dropout = 0.1F;  // inside the feed-forward
};

// tiny, small, base or big, without vocabularies; fails with the list of names.
ModelConfig preset(const std::string& name);

// All impossible values, one line each; empty if the config is valid.
std::string problems(const ModelConfig& config);

}  // namespace tandem::model
