#include "model/decoder.h"

#include "model/places.h"

namespace tandem::model {

namespace {

std::string layer_name(int layer) { return fmt::format("decoder.layers.{}", layer); }

nn::Linear make_memory(ParameterLayout& layout, const ModelConfig& config) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(config.decoder_layers));
  for (int l = 0; l < config.decoder_layers; ++l) {
    names.push_back(layer_name(l) + ".cross.kv");
  }
  return nn::Linear::make(layout, names, 2 * config.width, config.width, config.attention_bias);
}

}  // namespace

Decoder::Decoder(ParameterLayout& layout, const ModelConfig& config)
    : config_(config),
      memory_(make_memory(layout, config)),
      stack_(config.width, config.norm == NormPlace::pre, config.dropout, Side::target) {
  for (int l = 0; l < config.decoder_layers; ++l) {
    const std::string name = layer_name(l);
    const LayerPlaces places = layer_places(config.heads, places_index(l));
    stack_.add_sublayer(layout, name + ".self.norm", places.self_output);
    self_.push_back(nn::SelfAttention::make(layout, name + ".self", config.width, config.attention_bias));
    stack_.sum_bias_of(self_.back().out);
    stack_.add_sublayer(layout, name + ".cross.norm", places.cross_output);
    cross_.push_back(nn::CrossAttention::make(layout, name + ".cross", config.width, config.attention_bias));
    stack_.sum_bias_of(cross_.back().out);
    stack_.add_sublayer(layout, name + ".ffn.norm", places.feed_forward_output);
    feed_forward_.push_back(
        nn::FeedForward::make(layout, name + ".ffn", config.width, config.feed_forward, config.activation));
    stack_.sum_bias_of(feed_forward_.back().out);
  }
  stack_.finish(layout, "decoder.norm");
}

View Decoder::memory(const nn::Context& context, const View& output) const {
  const View result = context.take(output.rows, int64_t{2} * config_.decoder_layers * config_.width);
  memory_.forward(context, result, output);
  return result;
}

void Decoder::memory_backward(const nn::Context& context, const View& doutput, const View& dmemory,
                              const View& output) const {
  memory_.backward_weight(context, dmemory, output, Side::source);
  context.complete_from(memory_.weight);
  memory_.backward_input(context, doutput, dmemory);
}

View Decoder::keys_of(const View& memory, size_t layer) const {
  return memory.slice_cols(static_cast<int64_t>(layer) * 2 * config_.width, config_.width);
}

View Decoder::values_of(const View& memory, size_t layer) const {
  return memory.slice_cols(static_cast<int64_t>(layer) * 2 * config_.width + config_.width, config_.width);
}

backend::AttentionShape Decoder::self_shape(const nn::Context& context, int layer, const PackedSide& target,
                                            const View& plan) const {
  const LayerPlaces places = layer_places(config_.heads, places_index(layer));
  return {.heads = config_.heads,
          .causal = true,
          .query_starts = target.starts,
          .key_starts = target.starts,
          .longest_query = target.longest,
          .longest_key = target.longest,
          .dropout = context.dropout(config_.attention_dropout, places.self_weights, Side::target),
          .plan = plan};
}

backend::AttentionShape Decoder::cross_shape(const nn::Context& context, int layer, const PackedSide& target,
                                             const PackedSide& source, const View& plan) const {
  const LayerPlaces places = layer_places(config_.heads, places_index(layer));
  return {.heads = config_.heads,
          .causal = false,
          .query_starts = target.starts,
          .key_starts = source.starts,
          .longest_query = target.longest,
          .longest_key = source.longest,
          .dropout = context.dropout(config_.attention_dropout, places.cross_weights, Side::target),
          .plan = plan};
}

Decoder::Saved Decoder::forward(const nn::Context& context, const View& x, const View& memory, const PackedSide& target,
                                const PackedSide& source) const {
  Saved saved;
  const View self_plan = context.plan_attention(target.starts, x.rows, target.starts, x.rows);
  const View cross_plan = context.plan_attention(target.starts, x.rows, source.starts, memory.rows);
  saved.stack = stack_.forward(context, x, [&](int i, const View& input) {
    const int layer = i / 3;
    const auto l = static_cast<size_t>(layer);
    if (i % 3 == 0) {
      saved.self.push_back(self_[l].forward(context, input, self_shape(context, layer, target, self_plan)));
      return self_[l].output(saved.self[l]);
    }
    if (i % 3 == 1) {
      saved.cross.push_back(cross_[l].forward(context, input, keys_of(memory, l), values_of(memory, l),
                                              cross_shape(context, layer, target, source, cross_plan)));
      return cross_[l].output(saved.cross[l]);
    }
    const uint32_t place = layer_places(config_.heads, places_index(layer)).activation;
    const backend::Dropout dropout = context.dropout(config_.activation_dropout, place, Side::target);
    saved.feed_forward.push_back(feed_forward_[l].forward(context, input, dropout));
    return feed_forward_[l].output(saved.feed_forward[l]);
  });
  return saved;
}

View Decoder::backward(const nn::Context& context, const Saved& saved, const View& doutput, const View& dmemory) const {
  return stack_.backward(context, saved.stack, doutput,
                         [&](int i, const View& dinput, const View& dbranch, bool accumulate) {
                           const auto l = static_cast<size_t>(i / 3);
                           if (i % 3 == 0) {
                             self_[l].backward(context, saved.self[l], dinput, dbranch, accumulate);
                           } else if (i % 3 == 1) {
                             cross_[l].backward(context, saved.cross[l], dinput, keys_of(dmemory, l),
                                                values_of(dmemory, l), dbranch, accumulate);
                           } else {
                             feed_forward_[l].backward(context, saved.feed_forward[l], dinput, dbranch, accumulate);
                           }
                         });
}

}  // namespace tandem::model
