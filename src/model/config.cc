#include "model/config.h"

#include "core/error.h"

namespace tandem::model {

ModelConfig preset(const std::string& name) {
  ModelConfig config;  // base
  if (name == "tiny") {
    config.encoder_layers = config.decoder_layers = 4;
    config.width = 128;
    config.heads = 4;
    config.feed_forward = 256;
  } else if (name == "small") {
    config.width = 256;
    config.heads = 4;
    config.feed_forward = 1024;
  } else if (name == "big") {
    config.width = 1024;
    config.heads = 16;
    config.feed_forward = 4096;
    config.dropout = config.activation_dropout = 0.3F;
  } else {
    require(name == "base", "there is no model \"{}\"; use tiny, small, base or big", name);
  }
  return config;
}

namespace {

// Collects one line for each value that is out of its range.
class Problems {
 public:
  template <class... Args>
  void unless(bool sound, fmt::format_string<Args...> format, Args&&... args) {
    if (!sound) {
      text_ += text_.empty() ? "" : "\n";
      text_ += fmt::format(format, std::forward<Args>(args)...);
    }
  }
  void integer(const char* name, int64_t value, int64_t smallest, int64_t largest) {
    unless(value >= smallest && value <= largest, "{} is {}; use {} to {}.", name, value, smallest, largest);
  }
  // Written so that NaN is out of range.
  void rate(const char* name, float value) {
    unless(value >= 0 && value < 1, "{} is {}; use at least 0 and less than 1.", name, value);
  }
  std::string text() const { return text_; }

 private:
  std::string text_;
};

constexpr int64_t kLargestVocabulary = 1 << 24;
constexpr int64_t kLargestWidth = 1 << 16;
constexpr int64_t kLargestLength = 1 << 16;
constexpr int kMostLayers = 1000;

}  // namespace

std::string problems(const ModelConfig& config) {
  Problems found;
  found.integer("source_vocabulary", config.source_vocabulary, 5, kLargestVocabulary);
  found.integer("target_vocabulary", config.target_vocabulary, 5, kLargestVocabulary);
  found.unless(config.tie != Tie::all || config.source_vocabulary == config.target_vocabulary,
               "tie = \"all\" needs one joint vocabulary, but the source has {} pieces and the target {}; use "
               "tie = \"output\" or prepare the data with a joint vocabulary.",
               config.source_vocabulary, config.target_vocabulary);
  found.integer("encoder_layers", config.encoder_layers, 1, kMostLayers);
  found.integer("decoder_layers", config.decoder_layers, 1, kMostLayers);
  found.integer("width", config.width, 8, kLargestWidth);
  found.integer("heads", config.heads, 1, config.width);
  found.integer("feed_forward", config.feed_forward, 8, 4 * kLargestWidth);
  found.unless(config.width % 8 == 0, "width is {}; use a multiple of 8.", config.width);
  found.unless(config.feed_forward % 8 == 0, "feed_forward is {}; use a multiple of 8.", config.feed_forward);
  found.unless(config.heads < 1 || config.width % config.heads == 0, "width {} is not a multiple of the {} heads.",
               config.width, config.heads);
  found.unless(config.activation != backend::Activation::none, "the activation is none; use relu, gelu or swish.");
  found.integer("max_length", config.max_length, 2, kLargestLength);
  found.rate("dropout", config.dropout);
  found.rate("attention_dropout", config.attention_dropout);
  found.rate("activation_dropout", config.activation_dropout);
  return found.text();
}

}  // namespace tandem::model
