// Every key of the model's part of a config, once: reading, writing and comparing all walk this list.
#pragma once

#include <initializer_list>
#include <limits>

#include "model/config.h"

namespace tandem::model {

// Both ends are included, unless `above` or `below` is set.
struct Range {
  double low = std::numeric_limits<double>::lowest();
  double high = std::numeric_limits<double>::max();
  bool above = false;  // low itself is excluded
  bool below = false;  // high itself is excluded
};

constexpr Range at_least(double low) { return {.low = low}; }
constexpr Range kShare{.low = 0, .high = 1, .below = true};  // [0, 1)

using Choices = std::initializer_list<const char*>;

// Calls visit(key, member, range) and visit.choice(key, member, names) for each key of the config's [model] table. A
// choice's member is an enum (or a bool) whose value is the index of its name. problems() checks the ranges.
template <class Visit>
void visit_model(ModelConfig& c, Visit& visit) {
  visit("model.source_vocabulary", c.source_vocabulary, at_least(0));
  visit("model.target_vocabulary", c.target_vocabulary, at_least(0));
  visit("model.encoder_layers", c.encoder_layers, Range{});
  visit("model.decoder_layers", c.decoder_layers, Range{});
  visit("model.width", c.width, Range{});
  visit("model.heads", c.heads, Range{});
  visit("model.feed_forward", c.feed_forward, Range{});
  visit.choice("model.norm", c.norm, Choices{"pre", "post"});
  visit.choice("model.activation", c.activation, Choices{"none", "relu", "gelu", "swish"});
  visit.choice("model.tie", c.tie, Choices{"all", "output", "none"});
  visit("model.attention_bias", c.attention_bias, Range{});
  visit("model.max_length", c.max_length, Range{});
  visit("model.dropout", c.dropout, Range{});
  visit("model.attention_dropout", c.attention_dropout, Range{});
  visit("model.activation_dropout", c.activation_dropout, Range{});
}

}  // namespace tandem::model
