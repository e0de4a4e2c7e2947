// The config of a model that trains in milliseconds, complete but for data and run.
#pragma once

#include "train/config.h"

namespace tandem::train {

inline TrainConfig small_config() {
  TrainConfig config;
  config.model = model::preset("tiny");
  config.model.encoder_layers = config.model.decoder_layers = 1;
  config.model.width = 16;
  config.model.heads = 2;
  config.model.feed_forward = 32;
  config.model.source_vocabulary = config.model.target_vocabulary = 40;
  config.model.max_length = config.batch.max_length = 20;
  config.batch.tokens = 100;
  config.precision = Precision::f32;
  config.device = "cpu";
  config.threads = 1;
  return config;
}

}  // namespace tandem::train
