#include <gtest/gtest.h>

#include "core/philox.h"
#include "train/fixed_shape.h"
#include "train/validator.h"

namespace tandem::train {
namespace {

using testing::FixedShape;

std::vector<Ids> sentences(uint32_t seed, size_t count, int64_t longest, int64_t vocabulary) {
  PhiloxStream random(seed, 2);
  std::vector<Ids> all(count);
  for (Ids& ids : all) {
    ids.resize(1 + random.below(static_cast<uint64_t>(longest - 1)));
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(4 + random.below(static_cast<uint64_t>(vocabulary - 4)));
    }
  }
  return all;
}

// Several parts, of which the first is given op by op and the others are a recording; too long pairs are left out.
TEST(EvaluateLoss, TheShapeDoesNotMatter) {
  const auto cpu = backend::make_cpu_backend(1);
  model::ModelConfig config = model::preset("tiny");
  config.encoder_layers = config.decoder_layers = 1;
  config.width = 32;
  config.heads = 2;
  config.feed_forward = 64;
  config.source_vocabulary = config.target_vocabulary = 60;
  config.max_length = 40;
  const auto source = sentences(1, 700, 44, 60), target = sentences(2, 700, 44, 60);
  const auto loss_on = [&](backend::Backend& backend) {
    model::Transformer model(backend, config);
    const Buffer memory = cpu->allocate(static_cast<size_t>(model.parameters().flat_size()) * sizeof(float));
    const View flat = memory.view(DType::f32, 1, model.parameters().flat_size());
    initialize(flat, model.parameters(), 5);
    Arena arena([&](size_t bytes) { return backend.allocate(bytes); });
    return evaluate_loss(backend, model, {flat, flat}, source, target, arena);
  };
  FixedShape fixed(*cpu);
  const PairLoss one = loss_on(*cpu), other = loss_on(fixed);
  EXPECT_GT(one.too_long, 0);
  EXPECT_EQ(one.too_long, other.too_long);
  EXPECT_GT(one.totals.tokens, 10000);
  EXPECT_EQ(one.totals.tokens, other.totals.tokens);
  EXPECT_EQ(one.totals.correct, other.totals.correct);
  EXPECT_NEAR(one.nll() / other.nll(), 1, 1e-6);
}

}  // namespace
}  // namespace tandem::train
