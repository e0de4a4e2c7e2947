// The decoder on one position of each hypothesis, with cached keys and values.
#include "model/decoder.h"

namespace tandem::model {

nn::PendingProduct Decoder::self_step(const nn::Context& context, size_t layer, const View& input,
                                      const DecodeStep& step) const {
  const nn::SelfAttention& attention = self_[layer];
  const View qkv = context.take(input.rows, 3 * config_.width);
  const View mixed = context.take(input.rows, config_.width);
  attention.qkv.forward(context, qkv, input);
  context.backend.copy(step.keys[layer].slice_rows(step.write_row, input.rows), attention.keys(qkv));
  context.backend.copy(step.values[layer].slice_rows(step.write_row, input.rows), attention.values(qkv));
  const backend::CachedKeys cache{.keys = step.keys[layer],
                                  .values = step.values[layer],
                                  .length = step.self_length,
                                  .first = {},
                                  .index = step.self_index};
  context.backend.run(
      backend::op::AttentionCached{.out = mixed, .q = attention.queries(qkv), .cache = cache, .heads = config_.heads});
  return {attention.out, mixed};
}

nn::PendingProduct Decoder::cross_step(const nn::Context& context, size_t layer, const View& input,
                                       const DecodeStep& step) const {
  const View q = context.take(input.rows, config_.width);
  const View mixed = context.take(input.rows, config_.width);
  cross_[layer].q.forward(context, q, input);
  const backend::CachedKeys cache{.keys = keys_of(step.memory, layer),
                                  .values = values_of(step.memory, layer),
                                  .length = step.memory_length,
                                  .first = step.memory_first,
                                  .index = {}};
  context.backend.run(backend::op::AttentionCached{.out = mixed, .q = q, .cache = cache, .heads = config_.heads});
  return {cross_[layer].out, mixed};
}

View Decoder::step(const nn::Context& context, const View& x, const DecodeStep& step) const {
  const auto layers = static_cast<size_t>(config_.decoder_layers);
  require(step.keys.size() == layers && step.values.size() == layers, "caches for {} and {} layers of a model of {}",
          step.keys.size(), step.values.size(), layers);
  nn::require_shape(step.memory, step.memory.rows, int64_t{2} * config_.decoder_layers * config_.width,
                    "the encoded source");
  nn::require_shape(step.self_length, 1, x.rows, "the lengths of the hypotheses");
  nn::require_shape(step.self_index, x.rows, step.self_index.cols, "the cache rows of the hypotheses");
  nn::require_shape(step.memory_first, 1, x.rows, "the source rows of the hypotheses");
  nn::require_shape(step.memory_length, 1, x.rows, "the source lengths of the hypotheses");
  return stack_
      .forward(context, x,
               [&](int i, const View& input) {
                 const auto l = static_cast<size_t>(i / 3);
                 if (i % 3 == 0) {
                   return self_step(context, l, input, step);
                 }
                 if (i % 3 == 1) {
                   return cross_step(context, l, input, step);
                 }
                 return feed_forward_[l].output(feed_forward_[l].forward(context, input, {}));
               })
      .output();
}

}  // namespace tandem::model
