// A step at a fixed capacity, on the CPU, where it can be compared with the step on true counts.
#include <gtest/gtest.h>

#include <span>

#include "compare.h"
#include "core/philox.h"
#include "data/corpus_of.h"
#include "train/fixed_shape.h"
#include "train/learner.h"

namespace tandem::train {
namespace {

constexpr int64_t kVocabulary = 50;
constexpr int64_t kLongest = 20;

model::ModelConfig small_model() {
  model::ModelConfig config = model::preset("tiny");
  config.encoder_layers = config.decoder_layers = 1;
  config.width = 32;
  config.heads = 2;
  config.feed_forward = 64;
  config.source_vocabulary = config.target_vocabulary = kVocabulary;
  config.max_length = kLongest;
  return config;
}

// `micro_batches` micro-batches of a few sentences each, with the first tokens' indices filled in.
data::TrainStep make_step(uint32_t seed, int micro_batches) {
  PhiloxStream random(seed, 1);
  const auto sentence = [&random] {
    std::vector<int32_t> ids(1 + random.below(kLongest - 2));
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(4 + random.below(kVocabulary - 4));
    }
    return ids;
  };
  data::TrainStep step;
  for (int r = 0; r < micro_batches; ++r) {
    std::vector<std::vector<int32_t>> source, target;
    for (int i = 0; i < 5; ++i) {
      source.push_back(sentence());
      target.push_back(sentence());
    }
    data::HostBatch batch = data::pack(source, target);
    batch.source.first = static_cast<uint32_t>(step.source_tokens);
    batch.target.first = static_cast<uint32_t>(step.target_tokens);
    step.source_tokens += static_cast<int64_t>(batch.source.tokens.size());
    step.target_tokens += static_cast<int64_t>(batch.target.tokens.size());
    step.micro_batches.push_back(std::move(batch));
  }
  return step;
}

struct Outcome {
  std::vector<float> weights;
  std::vector<StepResult> results;
};

// Six steps, of one micro-batch and of two in turn.
Outcome train(const std::vector<data::MicroBatchCapacity>& capacities, bool recorded) {
  const auto cpu = backend::make_cpu_backend(1);
  testing::FixedShape fixed(*cpu);
  TrainConfig config;
  config.model = small_model();
  config.precision = Precision::f32;
  config.dist.wire = DistConfig::Wire::f32;
  config.label_smoothing = 0.1F;
  MemoryPlan plan;
  plan.batch.max_length = kLongest;
  for (const data::MicroBatchCapacity& capacity : capacities) {
    plan.layouts.emplace_back(capacity, kLongest, config.model);
  }
  const data::Corpus corpus = testing::corpus_of({{4}}, {{5}});
  const auto alone = dist::make_single_communicator();
  Learner learner(capacities.empty() ? *cpu : static_cast<backend::Backend&>(fixed), config, corpus, {*alone, *alone},
                  {.plan = plan});
  learner.begin();
  Outcome outcome;
  for (uint32_t i = 0; i < 6; ++i) {
    const data::TrainStep step = make_step(i + 1, 1 + static_cast<int>(i % 2));
    learner.give(step, learner.input_of(step, i, 1e-3), recorded);
    EXPECT_EQ(learner.under_way(), 1U);
    outcome.results.push_back(learner.take());
  }
  const View flat = learner.weights().masters();
  outcome.weights.assign(flat.host<float>(), flat.host<float>() + flat.size());
  return outcome;
}

void expect_equal(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.results.size(), b.results.size());
  for (size_t i = 0; i < a.results.size(); ++i) {
    EXPECT_EQ(a.results[i].sums.totals.tokens, b.results[i].sums.totals.tokens);
    EXPECT_NEAR(a.results[i].sums.totals.nll / b.results[i].sums.totals.nll, 1, 1e-5);
    EXPECT_NEAR(a.results[i].update.norm / b.results[i].update.norm, 1, 1e-4);
    EXPECT_EQ(b.results[i].update.updates, i + 1);
  }
  EXPECT_TRUE(testing::close(std::span(a.weights), std::span(b.weights), 2e-5, 1e-3));
}

TEST(LearnerSteps, RowsPastTheTrueCountTouchNothing) { expect_equal(train({}, true), train({{128, 128, 9}}, true)); }

TEST(LearnerSteps, TheSmallestCapacityThatHoldsAMicroBatchIsTaken) {
  expect_equal(train({}, true), train({{40, 40, 5}, {64, 64, 5}, {128, 128, 5}}, true));
}

TEST(LearnerSteps, RecordedOrNotGivesTheSameBits) {
  EXPECT_EQ(train({{128, 128, 9}}, true).weights, train({{128, 128, 9}}, false).weights);
}

TEST(LearnerSteps, AMicroBatchThatIsTooLargeIsRefused) { EXPECT_THROW(train({{40, 40, 5}}, true), Error); }

TEST(LearnerSteps, ThePlanIsWhatAStepTakes) {
  const auto backend = backend::make_cpu_backend(1);
  const model::ModelConfig config = small_model();
  const BatchLayout layout({128, 128, 9}, kLongest, config);
  const size_t planned = planned_arena_bytes(*backend, config, DType::f32, layout);
  const model::Transformer model(*backend, config);
  ModelState weights(*backend, model.parameters(), DType::f32, false);
  Arena arena([&](size_t bytes) { return backend->allocate(bytes); });
  arena.reserve(planned);
  std::vector<std::byte> block(layout.bytes());
  const data::TrainStep step = make_step(1, 1);
  layout.write(block, step.micro_batches[0], step, {.state = {.loss_scale = 1}});
  backend::LossTotals totals;
  model.train(weights.weights(), weights.gradients(), layout.batch(block.data(), Memory::host), 0.1F, &totals, arena);
  EXPECT_EQ(arena.peak_bytes(), planned);
  EXPECT_EQ(arena.allocations(), 1U);
}

}  // namespace
}  // namespace tandem::train
