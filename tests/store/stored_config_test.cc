// The model's part of a stored config: what training wrote comes back, and nothing is guessed.
#include <gtest/gtest.h>

#include "store/model_loader.h"
#include "temporary_directory.h"
#include "train/config.h"

namespace tandem::store {
namespace {

using testing::message_of;

TEST(StoredConfig, EqualsWhatTheTrainingConfigReads) {
  const std::vector<std::vector<std::string>> settings = {
      {},
      {"model.preset=tiny", "model.source_vocabulary=31", "model.target_vocabulary=47", "model.tie=none"},
      {"model.preset=big", "model.norm=post", "model.activation=swish", "model.attention_bias=true"},
      {"model.dropout=0.123", "model.attention_dropout=0", "model.activation_dropout=1e-7", "model.max_length=77"},
      {"data=\"[model]\"", "run=\"a = b\"", "model.encoder_layers=3", "model.decoder_layers=2"}};
  for (const std::vector<std::string>& overrides : settings) {
    const train::TrainConfig config = train::parse_config("", "test", overrides);
    train::TrainConfig again = config;
    again.model = read_model_config(train::to_toml(config), "config.toml");
    EXPECT_EQ(train::to_toml(again), train::to_toml(config));
  }
}

TEST(StoredConfig, KeysOfAnOlderVersionKeepTheirDefaults) {
  const model::ModelConfig config =
      read_model_config("seed = 1\n\n[model]\nwidth = 64\n\n[batch]\nwidth = 7\n", "config.toml");
  EXPECT_EQ(config.width, 64);
  EXPECT_EQ(config.heads, model::ModelConfig{}.heads);
}

TEST(StoredConfig, WhatIsNotKnownIsRefused) {
  const auto fault = [](const std::string& toml) {
    return message_of([&] { read_model_config(toml, "x/config.toml"); });
  };
  EXPECT_NE(fault("[model]\nwidth = 64\nwings = 2\n").find("model.wings"), std::string::npos);
  EXPECT_NE(fault("[model]\nwidth = 64 cm\n").find("model.width = 64 cm"), std::string::npos);
  EXPECT_NE(fault("[model]\nwidth = \n").find("model.width"), std::string::npos);
  EXPECT_NE(fault("[model]\nnorm = \"middle\"\n").find("model.norm"), std::string::npos);
  EXPECT_NE(fault("[model]\nattention_bias = 1\n").find("model.attention_bias"), std::string::npos);
  EXPECT_NE(fault("seed = 1\n").find("[model]"), std::string::npos);
  EXPECT_NE(fault("").find("x/config.toml"), std::string::npos);
}

}  // namespace
}  // namespace tandem::store
