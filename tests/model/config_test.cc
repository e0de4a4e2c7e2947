#include "model/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "model/places.h"
#include "model/transformer.h"

namespace tandem::model {
namespace {

ModelConfig with_vocabulary(ModelConfig config, int64_t source, int64_t target) {
  config.source_vocabulary = source;
  config.target_vocabulary = target;
  return config;
}

ParameterLayout layout_of(const ModelConfig& config) {
  const auto backend = backend::make_cpu_backend(1);
  return Transformer(*backend, config).parameters();
}

TEST(Config, BaseHasThePublishedParameterCount) {
  EXPECT_EQ(layout_of(with_vocabulary(preset("base"), 32768, 32768)).count(), 60880896);
}

TEST(Config, PresetsAreSoundOnceTheyHaveVocabularies) {
  for (const char* name : {"tiny", "small", "base", "big"}) {
    EXPECT_NE(problems(preset(name)), "") << name;
    EXPECT_EQ(problems(with_vocabulary(preset(name), 1000, 1000)), "") << name;
  }
  EXPECT_EQ(preset("big").dropout, 0.3F);
  EXPECT_EQ(preset("big").attention_dropout, 0.1F);
  EXPECT_EQ(preset("tiny").feed_forward, 256);
  EXPECT_THROW(preset("huge"), Error);
}

TEST(Config, AllProblemsAreListedAtOnce) {
  ModelConfig config = with_vocabulary(preset("base"), 100, 200);
  config.heads = 7;
  config.decoder_layers = 0;
  config.dropout = std::numeric_limits<float>::quiet_NaN();
  config.attention_dropout = 1.0F;
  config.max_length = -3;
  const std::string text = problems(config);
  for (const char* part : {"joint vocabulary", "7 heads", "decoder_layers is 0", "dropout is nan",
                           "attention_dropout is 1", "max_length is -3"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;
  EXPECT_THROW(layout_of(config), Error);
}

TEST(Config, ParametersAreNamedInForwardOrder) {
  ModelConfig config = with_vocabulary(preset("tiny"), 50, 60);
  config.encoder_layers = config.decoder_layers = 1;
  config.tie = Tie::none;
  config.attention_bias = true;
  const ParameterLayout layout = layout_of(config);
  std::vector<std::string> names;
  for (const Parameter& parameter : layout.all()) {
    names.push_back(parameter.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"source_embedding.weight",
                                             "target_embedding.weight",
                                             "encoder.layers.0.self.norm.gamma",
                                             "encoder.layers.0.self.norm.beta",
                                             "encoder.layers.0.self.qkv.weight",
                                             "encoder.layers.0.self.qkv.bias",
                                             "encoder.layers.0.self.out.weight",
                                             "encoder.layers.0.self.out.bias",
                                             "encoder.layers.0.ffn.norm.gamma",
                                             "encoder.layers.0.ffn.norm.beta",
                                             "encoder.layers.0.ffn.in.weight",
                                             "encoder.layers.0.ffn.in.bias",
                                             "encoder.layers.0.ffn.out.weight",
                                             "encoder.layers.0.ffn.out.bias",
                                             "encoder.norm.gamma",
                                             "encoder.norm.beta",
                                             "decoder.layers.0.cross.kv.weight",
                                             "decoder.layers.0.cross.kv.bias",
                                             "decoder.layers.0.self.norm.gamma",
                                             "decoder.layers.0.self.norm.beta",
                                             "decoder.layers.0.self.qkv.weight",
                                             "decoder.layers.0.self.qkv.bias",
                                             "decoder.layers.0.self.out.weight",
                                             "decoder.layers.0.self.out.bias",
                                             "decoder.layers.0.cross.norm.gamma",
                                             "decoder.layers.0.cross.norm.beta",
                                             "decoder.layers.0.cross.q.weight",
                                             "decoder.layers.0.cross.q.bias",
                                             "decoder.layers.0.cross.out.weight",
                                             "decoder.layers.0.cross.out.bias",
                                             "decoder.layers.0.ffn.norm.gamma",
                                             "decoder.layers.0.ffn.norm.beta",
                                             "decoder.layers.0.ffn.in.weight",
                                             "decoder.layers.0.ffn.in.bias",
                                             "decoder.layers.0.ffn.out.weight",
                                             "decoder.layers.0.ffn.out.bias",
                                             "decoder.norm.gamma",
                                             "decoder.norm.beta",
                                             "output.weight"}));
}

TEST(Config, PlacesOfLayersDoNotOverlap) {
  const int heads = 8;
  EXPECT_GT(layer_places(heads, 0).self_weights, embedding_place(Side::target));
  const LayerPlaces first = layer_places(heads, 0), second = layer_places(heads, 1);
  EXPECT_EQ(first.self_weights + heads, first.cross_weights);
  EXPECT_EQ(first.cross_weights + heads, first.self_output);
  EXPECT_EQ(first.feed_forward_output + 1, second.self_weights);
}

}  // namespace
}  // namespace tandem::model
