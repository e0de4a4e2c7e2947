#include "model/transformer.h"

#include <vector>

#include "model/places.h"

namespace tandem::model {

namespace {

const ModelConfig& checked(const ModelConfig& config, const backend::Backend& backend) {
  const std::string wrong = problems(config);
  require(wrong.empty(), "invalid model config: {}", wrong);
  backend.traits().require_sizes(config.width, config.heads);
  return config;
}

nn::Embedding make_source_embedding(ParameterLayout& layout, const ModelConfig& config) {
  const char* name = config.tie == Tie::all ? "embedding.weight" : "source_embedding.weight";
  return {layout.add_matrix(name, config.source_vocabulary, config.width, Init::embedding)};
}

nn::Embedding make_target_embedding(ParameterLayout& layout, const ModelConfig& config, const nn::Embedding& source) {
  if (config.tie == Tie::all) {
    return source;
  }
  return {layout.add_matrix("target_embedding.weight", config.target_vocabulary, config.width, Init::embedding)};
}

nn::OutputLoss make_output(ParameterLayout& layout, const ModelConfig& config, const nn::Embedding& target) {
  if (config.tie != Tie::none) {
    return {target.table};
  }
  return {layout.add_matrix("output.weight", config.target_vocabulary, config.width, Init::embedding)};
}

}  // namespace

int64_t parameter_count(const ModelConfig& config) {
  ParameterLayout layout;
  const nn::Embedding source = make_source_embedding(layout, config);
  const nn::Embedding target = make_target_embedding(layout, config, source);
  const Stack encoder(layout, config, Side::source), decoder(layout, config, Side::target);
  const SourceMemory memory(layout, config);
  make_output(layout, config, target);
  return layout.count();
}

Transformer::Transformer(backend::Backend& backend, const ModelConfig& config, DType master)
    : backend_(backend),
      config_(checked(config, backend)),
      source_embedding_(make_source_embedding(layout_, config_)),
      target_embedding_(make_target_embedding(layout_, config_, source_embedding_)),
      encoder_(layout_, config_, Side::source),
      memory_(layout_, config_),
      decoder_(layout_, config_, Side::target),
      output_(make_output(layout_, config_, target_embedding_)) {
  require(master == DType::f32 || master == DType::f64, "master weights are f32 or f64, not {}", name_of(master));
  const std::vector<double> table = nn::sinusoid_positions(config_.max_length, config_.width);
  position_memory_ = backend.allocate(table.size() * size_of(master));
  positions_ = position_memory_.view(master, config_.max_length, config_.width);
  if (master == DType::f64) {
    backend.upload(positions_, table.data());
  } else {
    const std::vector<float> narrow(table.begin(), table.end());
    backend.upload(positions_, narrow.data());
  }
}

nn::Context Transformer::context_for(const nn::Weights& weights, Arena& arena) const {
  nn::require_shape(weights.masters, 1, layout_.flat_size(), "the flat master weights");
  nn::require_shape(weights.compute, 1, layout_.flat_size(), "the flat compute weights");
  return {.backend = backend_, .arena = arena, .layout = layout_, .weights = weights};
}

backend::Dropout Transformer::embedding_dropout(const nn::Context& context, Side side) const {
  return context.dropout(config_.dropout, embedding_place(side), side);
}

View Transformer::embed(const nn::Context& context, const nn::Embedding& embedding, const View& tokens,
                        const View& position, Side side) const {
  const View x = context.take(tokens.cols, config_.width);
  embedding.forward(context, x, tokens, position, positions_, embedding_dropout(context, side));
  return x;
}

View Transformer::embed(const nn::Context& context, const PackedSide& packed, Side side) const {
  require(packed.longest <= config_.max_length, "a sentence has {} tokens, but the model takes at most {}",
          packed.longest, config_.max_length);
  return embed(context, side == Side::source ? source_embedding_ : target_embedding_, packed.tokens, packed.position,
               side);
}

Transformer::Pass Transformer::forward(const nn::Context& context, const Batch& batch) const {
  require(batch.source.starts.cols == batch.target.starts.cols, "the batch has {} source but {} target sentences",
          batch.source.starts.cols - 1, batch.target.starts.cols - 1);
  Pass pass;
  pass.encoder = encoder_.forward(context, embed(context, batch.source, Side::source), {batch.source});
  pass.memory = memory_.forward(context, pass.encoder.output());
  if (context.training) {
    pass.dmemory = context.take(pass.memory.rows, pass.memory.cols);
  }
  pass.decoder = decoder_.forward(context, embed(context, batch.target, Side::target),
                                  {batch.target, &batch.source, pass.memory, pass.dmemory});
  return pass;
}

void Transformer::train(const nn::Weights& weights, const Gradients& gradients, const Batch& batch, float smoothing,
                        backend::LossTotals* totals, Arena& arena) const {
  nn::require_shape(gradients.flat, 1, layout_.flat_size(), "the flat gradients");
  require(batch.state != nullptr, "training needs the step's state");
  nn::Context context = context_for(weights, arena);
  context.gradients = gradients.flat;
  context.accumulate = gradients.accumulate;
  context.state = batch.state;
  context.training = true;
  context.source_parts = batch.source.parts;
  context.target_parts = batch.target.parts;
  const Pass pass = forward(context, batch);

  if (!gradients.accumulate) {  // the output's matrix is written; a separate table only gets the rows of its tokens
    for (const ParameterLayout::Id table : {source_embedding_.table, target_embedding_.table}) {
      if (table != output_.matrix) {
        backend_.fill_zero(context.gradient(table));
      }
    }
  }
  nn::BackwardProgress progress(backend_, layout_, gradients.complete);
  context.progress = &progress;
  {
    const nn::Scratch scratch(arena);
    const View doutput = context.take(batch.target.rows(), config_.width);
    output_.train(context, totals, doutput, pass.decoder.output(), batch.labels, smoothing);
    if (gradients.complete && config_.tie != Tie::none) {
      const Parameter& table = layout_[output_.matrix];
      gradients.complete(table.offset, table.offset + table.size());
    }
    const View dtarget = decoder_.backward(context, pass.decoder, doutput);
    embed_backward(context, gradients, dtarget, batch.target, Side::target);
  }
  const View dencoded = context.take(batch.source.rows(), config_.width);
  memory_.backward(context, dencoded, pass.dmemory, pass.encoder.output());
  const View dsource = encoder_.backward(context, pass.encoder, dencoded);
  progress.finish();
  embed_backward(context, gradients, dsource, batch.source, Side::source);
}

void Transformer::embed_backward(const nn::Context& context, const Gradients& gradients, const View& dx,
                                 const PackedSide& packed, Side side) const {
  const bool source = side == Side::source;
  const View& rows = source ? gradients.source_rows : gradients.target_rows;
  const View table = context.gradient((source ? source_embedding_ : target_embedding_).table);
  nn::Embedding::backward(context, rows.empty() ? table : rows, dx, packed.order, embedding_dropout(context, side));
  if (gradients.rows_complete) {
    gradients.rows_complete(side);
  }
}

void Transformer::evaluate(const nn::Weights& weights, const Batch& batch, float smoothing, backend::LossTotals* totals,
                           Arena& arena) const {
  const nn::Context context = context_for(weights, arena);
  const Pass pass = forward(context, batch);
  output_.evaluate(context, totals, pass.decoder.output(), batch.labels, smoothing);
}

View Transformer::logits(const nn::Weights& weights, const Batch& batch, Arena& arena) const {
  const nn::Context context = context_for(weights, arena);
  return output_.logits(context, forward(context, batch).decoder.output());
}

View Transformer::encode(const nn::Weights& weights, const PackedSide& source, Arena& arena) const {
  const nn::Context context = context_for(weights, arena);
  const View x = embed(context, source, Side::source);
  return memory_.forward(context, encoder_.forward(context, x, {source}).output());
}

View Transformer::decode(const nn::Weights& weights, const DecodeStep& step, Arena& arena) const {
  const nn::Context context = context_for(weights, arena);
  const View x = embed(context, target_embedding_, step.tokens, step.position, Side::target);
  return output_.logits(context, decoder_.step(context, x, step));
}

}  // namespace tandem::model
