#include "model/stack.h"

#include "model/source_memory.h"
#include "nn/cross_attention.h"
#include "nn/feed_forward.h"
#include "nn/self_attention.h"

namespace tandem::model {

namespace {

// Pairs a sublayer's last product with its backward pass, which reads what the forward pass saved.
template <class Part>
nn::ResidualStack::Branch branch_of(const Part& part, const typename Part::Saved& saved) {
  return {part.output(saved),
          [&part, saved](const nn::Context& context, const View& dinput, const View& dbranch, bool accumulate) {
            part.backward(context, saved, dinput, dbranch, accumulate);
          }};
}

class SelfAttention final : public Sublayer {
 public:
  static constexpr const char* kName = "self";
  static constexpr auto kOutput = &LayerPlaces::self_output;

  SelfAttention(ParameterLayout& layout, const std::string& name, const Layer& layer)
      : layer_(layer), part_(nn::SelfAttention::make(layout, name, layer.config.width, layer.config.attention_bias)) {}

  nn::Linear& output() override { return part_.out; }

  nn::ResidualStack::Branch forward(const nn::Context& context, const View& x, const StackInput& input) const override {
    const PackedSide& rows = input.rows;
    const ModelConfig& config = layer_.config;
    return branch_of(
        part_,
        part_.forward(context, x,
                      {.heads = config.heads,
                       .causal = layer_.side == Side::target,
                       .query_starts = rows.starts,
                       .key_starts = rows.starts,
                       .longest_query = rows.longest,
                       .longest_key = rows.longest,
                       .dropout = context.dropout(config.attention_dropout, layer_.places.self_weights, layer_.side),
                       .plan = input.self_plan}));
  }

  nn::PendingProduct step(const nn::Context& context, const View& x, const DecodeStep& step) const override {
    const View qkv = context.take(x.rows, 3 * part_.width);
    const View mixed = context.take(x.rows, part_.width);
    const View& keys = step.keys[static_cast<size_t>(layer_.number)];
    const View& values = step.values[static_cast<size_t>(layer_.number)];
    part_.qkv.forward(context, qkv, x);
    context.backend.copy(keys.slice_rows(step.write_row, x.rows), part_.keys(qkv));
    context.backend.copy(values.slice_rows(step.write_row, x.rows), part_.values(qkv));
    context.backend.run(backend::op::AttentionCached{
        .out = mixed,
        .q = part_.queries(qkv),
        .cache = {.keys = keys, .values = values, .length = step.self_length, .first = {}, .index = step.self_index},
        .heads = layer_.config.heads});
    return {part_.out, mixed};
  }

 private:
  const Layer layer_;
  nn::SelfAttention part_;
};

class CrossAttention final : public Sublayer {
 public:
  static constexpr const char* kName = "cross";
  static constexpr auto kOutput = &LayerPlaces::cross_output;

  CrossAttention(ParameterLayout& layout, const std::string& name, const Layer& layer)
      : layer_(layer), part_(nn::CrossAttention::make(layout, name, layer.config.width, layer.config.attention_bias)) {}

  nn::Linear& output() override { return part_.out; }

  nn::ResidualStack::Branch forward(const nn::Context& context, const View& x, const StackInput& input) const override {
    const ModelConfig& config = layer_.config;
    const nn::CrossAttention::Saved saved =
        part_.forward(context, x, keys_of(input.memory), values_of(input.memory),
                      {.heads = config.heads,
                       .causal = false,
                       .query_starts = input.rows.starts,
                       .key_starts = input.source->starts,
                       .longest_query = input.rows.longest,
                       .longest_key = input.source->longest,
                       .dropout = context.dropout(config.attention_dropout, layer_.places.cross_weights, layer_.side),
                       .plan = input.cross_plan});
    return {part_.output(saved), [this, saved, dmemory = input.dmemory](const nn::Context& again, const View& dinput,
                                                                        const View& dbranch, bool accumulate) {
              part_.backward(again, saved, dinput, keys_of(dmemory), values_of(dmemory), dbranch, accumulate);
            }};
  }

  nn::PendingProduct step(const nn::Context& context, const View& x, const DecodeStep& step) const override {
    const View q = context.take(x.rows, part_.width);
    const View mixed = context.take(x.rows, part_.width);
    part_.q.forward(context, q, x);
    context.backend.run(backend::op::AttentionCached{.out = mixed,
                                                     .q = q,
                                                     .cache = {.keys = keys_of(step.memory),
                                                               .values = values_of(step.memory),
                                                               .length = step.memory_length,
                                                               .first = step.memory_first,
                                                               .index = {}},
                                                     .heads = layer_.config.heads});
    return {part_.out, mixed};
  }

 private:
  View keys_of(const View& memory) const { return memory_keys(memory, layer_.number, part_.width); }
  View values_of(const View& memory) const { return memory_values(memory, layer_.number, part_.width); }

  const Layer layer_;
  nn::CrossAttention part_;
};

class FeedForward final : public Sublayer {
 public:
  static constexpr const char* kName = "ffn";
  static constexpr auto kOutput = &LayerPlaces::feed_forward_output;

  FeedForward(ParameterLayout& layout, const std::string& name, const Layer& layer)
      : layer_(layer),
        part_(nn::FeedForward::make(layout, name, layer.config.width, layer.config.feed_forward,
                                    layer.config.activation)) {}

  nn::Linear& output() override { return part_.out; }

  nn::ResidualStack::Branch forward(const nn::Context& context, const View& x,
                                    const StackInput& /*input*/) const override {
    const float rate = layer_.config.activation_dropout;
    return branch_of(part_, part_.forward(context, x, context.dropout(rate, layer_.places.activation, layer_.side)));
  }

  nn::PendingProduct step(const nn::Context& context, const View& x, const DecodeStep& /*step*/) const override {
    return part_.output(part_.forward(context, x, {}));
  }

 private:
  const Layer layer_;
  nn::FeedForward part_;
};

}  // namespace

template <class Kind>
void Stack::add(ParameterLayout& layout, const Layer& layer) {
  const std::string name = layer.name + "." + Kind::kName;
  stack_.add_sublayer(layout, name + ".norm", layer.places.*Kind::kOutput);
  sublayers_.push_back(std::make_unique<Kind>(layout, name, layer));
  stack_.sum_bias_of(sublayers_.back()->output());
}

Stack::Stack(ParameterLayout& layout, const ModelConfig& config, Side side)
    : config_(config), stack_(config.width, config.norm == NormPlace::pre, config.dropout, side) {
  const bool decoder = side == Side::target;
  const std::string name = decoder ? "decoder" : "encoder";
  const int before = decoder ? config.encoder_layers : 0;
  for (int l = 0; l < (decoder ? config.decoder_layers : config.encoder_layers); ++l) {
    const Layer layer{config, side, l, fmt::format("{}.layers.{}", name, l), layer_places(config.heads, before + l)};
    add<SelfAttention>(layout, layer);
    if (decoder) {
      add<CrossAttention>(layout, layer);
    }
    add<FeedForward>(layout, layer);
  }
  stack_.finish(layout, name + ".norm");
}

Stack::Saved Stack::forward(const nn::Context& context, const View& x, StackInput input) const {
  const View& starts = input.rows.starts;
  input.self_plan = context.plan_attention(starts, x.rows, starts, x.rows);
  if (input.source != nullptr) {
    input.cross_plan = context.plan_attention(starts, x.rows, input.source->starts, input.memory.rows);
  }
  return stack_.forward(context, x, [&](int i, const View& rows) {
    return sublayers_[static_cast<size_t>(i)]->forward(context, rows, input);
  });
}

View Stack::step(const nn::Context& context, const View& x, const DecodeStep& step) const {
  const auto layers = static_cast<size_t>(config_.decoder_layers);
  require(step.keys.size() == layers && step.values.size() == layers,
          "there are key caches for {} layers and value caches for {}, but the model has {}", step.keys.size(),
          step.values.size(), layers);
  nn::require_shape(step.memory, step.memory.rows, int64_t{2} * config_.decoder_layers * config_.width,
                    "the encoded source");
  nn::require_shape(step.self_length, 1, x.rows, "the lengths of the hypotheses");
  nn::require_shape(step.self_index, x.rows, step.self_index.cols, "the cache rows of the hypotheses");
  nn::require_shape(step.memory_first, 1, x.rows, "the source rows of the hypotheses");
  nn::require_shape(step.memory_length, 1, x.rows, "the source lengths of the hypotheses");
  const auto sublayer = [&](int i, const View& rows) {
    return nn::ResidualStack::Branch{sublayers_[static_cast<size_t>(i)]->step(context, rows, step)};
  };
  return stack_.forward(context, x, sublayer).output();
}

}  // namespace tandem::model
