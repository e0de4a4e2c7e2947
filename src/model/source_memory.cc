#include "model/source_memory.h"

namespace tandem::model {

namespace {

std::vector<std::string> names_of(const ModelConfig& config) {
  std::vector<std::string> names;
  for (int l = 0; l < config.decoder_layers; ++l) {
    names.push_back(fmt::format("decoder.layers.{}.cross.kv", l));
  }
  return names;
}

}  // namespace

SourceMemory::SourceMemory(ParameterLayout& layout, const ModelConfig& config)
    : product_(
          nn::Linear::make(layout, names_of(config), 2 * int64_t{config.width}, config.width, config.attention_bias)),
      cols_(int64_t{2} * config.decoder_layers * config.width) {}

View SourceMemory::forward(const nn::Context& context, const View& output) const {
  const View memory = context.take(output.rows, cols_);
  product_.forward(context, memory, output);
  return memory;
}

void SourceMemory::backward(const nn::Context& context, const View& doutput, const View& dmemory,
                            const View& output) const {
  product_.backward_weight(context, dmemory, output, Side::source);
  context.complete_from(product_.weight);
  product_.backward_input(context, doutput, dmemory);
}

}  // namespace tandem::model
