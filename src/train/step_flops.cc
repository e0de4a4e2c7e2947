#include "train/step_flops.h"

namespace tandem::train {

int64_t tokens_of(const data::TrainStep& step) {
  size_t tokens = 0;
  for (const data::HostBatch& micro_batch : step.micro_batches) {
    tokens += micro_batch.source.tokens.size() + micro_batch.target.tokens.size();
  }
  return static_cast<int64_t>(tokens);
}

double step_flops(const model::ModelConfig& model, const data::TrainStep& step) {
  const double d = static_cast<double>(model.width), f = static_cast<double>(model.feed_forward);
  const double encoder = model.encoder_layers, decoder = model.decoder_layers;
  double forward = 0;
  for (const data::HostBatch& micro_batch : step.micro_batches) {
    const auto S = static_cast<double>(micro_batch.source.tokens.size()),
               T = static_cast<double>(micro_batch.target.tokens.size());
    forward += S * encoder * (8 * d * d + 4 * d * f) + T * decoder * (12 * d * d + 4 * d * f) +
               S * decoder * 4 * d * d + 2 * T * d * static_cast<double>(model.target_vocabulary);
    for (size_t i = 0; i + 1 < micro_batch.source.starts.size(); ++i) {
      const double s = micro_batch.source.starts[i + 1] - micro_batch.source.starts[i];
      const double t = micro_batch.target.starts[i + 1] - micro_batch.target.starts[i];
      forward += encoder * 4 * s * s * d + decoder * (2 * t * t + 4 * s * t) * d;
    }
  }
  return 3 * forward;
}

}  // namespace tandem::train
