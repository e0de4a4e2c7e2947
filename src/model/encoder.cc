#include "model/encoder.h"

#include "model/places.h"

namespace tandem::model {

Encoder::Encoder(ParameterLayout& layout, const ModelConfig& config)
    : config_(config), stack_(config.width, config.norm == NormPlace::pre, config.dropout, Side::source) {
  for (int l = 0; l < config.encoder_layers; ++l) {
    const std::string name = fmt::format("encoder.layers.{}", l);
    const LayerPlaces places = layer_places(config.heads, l);
    stack_.add_sublayer(layout, name + ".self.norm", places.self_output);
    attention_.push_back(nn::SelfAttention::make(layout, name + ".self", config.width, config.attention_bias));
    stack_.sum_bias_of(attention_.back().out);
    stack_.add_sublayer(layout, name + ".ffn.norm", places.feed_forward_output);
    feed_forward_.push_back(
        nn::FeedForward::make(layout, name + ".ffn", config.width, config.feed_forward, config.activation));
    stack_.sum_bias_of(feed_forward_.back().out);
  }
  stack_.finish(layout, "encoder.norm");
}

Encoder::Saved Encoder::forward(const nn::Context& context, const View& x, const PackedSide& source) const {
  Saved saved;
  const View plan = context.plan_attention(source.starts, x.rows, source.starts, x.rows);
  saved.stack = stack_.forward(context, x, [&](int i, const View& input) {
    const auto l = static_cast<size_t>(i / 2);
    const LayerPlaces places = layer_places(config_.heads, i / 2);
    if (i % 2 == 0) {
      const backend::AttentionShape shape{
          .heads = config_.heads,
          .causal = false,
          .query_starts = source.starts,
          .key_starts = source.starts,
          .longest_query = source.longest,
          .longest_key = source.longest,
          .dropout = context.dropout(config_.attention_dropout, places.self_weights, Side::source),
          .plan = plan};
      saved.attention.push_back(attention_[l].forward(context, input, shape));
      return attention_[l].output(saved.attention[l]);
    }
    const backend::Dropout dropout = context.dropout(config_.activation_dropout, places.activation, Side::source);
    saved.feed_forward.push_back(feed_forward_[l].forward(context, input, dropout));
    return feed_forward_[l].output(saved.feed_forward[l]);
  });
  return saved;
}

View Encoder::backward(const nn::Context& context, const Saved& saved, const View& doutput) const {
  return stack_.backward(context, saved.stack, doutput,
                         [&](int i, const View& dinput, const View& dbranch, bool accumulate) {
                           const auto l = static_cast<size_t>(i / 2);
                           if (i % 2 == 0) {
                             attention_[l].backward(context, saved.attention[l], dinput, dbranch, accumulate);
                           } else {
                             feed_forward_[l].backward(context, saved.feed_forward[l], dinput, dbranch, accumulate);
                           }
                         });
}

}  // namespace tandem::model
