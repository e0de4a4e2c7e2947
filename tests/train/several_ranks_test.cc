// One model trained by several ranks, as threads: the same sentences in every step, the same losses, the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <utility>

#include "backend/forwarding.h"
#include "core/philox.h"
#include "data/corpus_of.h"
#include "dist/ranks.h"
#include "train/fixed_shape.h"
#include "train/learner.h"

namespace tandem::train {
namespace {

using testing::FixedShape;

constexpr int64_t kVocabulary = 60;
constexpr int64_t kLongest = 24;

struct UpdateSetting {
  DType wire = DType::f32;  // of gradients between ranks
  bool shard_optimizer = false;
  bool whole_parameters = false;            // shards end at the ends of parameters
  int64_t bucket_bytes = int64_t{4} << 20;  // of f32 gradients
};

struct Setting {
  int ranks = 1;
  int64_t micro_batch = 0;
  UpdateSetting update = {.bucket_bytes = 24000};
  model::Tie tie = model::Tie::all;
  model::NormPlace norm = model::NormPlace::pre;
  bool fixed_shape = false;
  bool average = false;
  int64_t tokens = 150;
  int steps = 50;
  bool whole_preset = false;  // tiny as it is, else smaller
  backend::Activation activation = backend::Activation::relu;
  float learning_rate = 2e-3F;  // the highest, at step 20
  int64_t part_tokens = 24;     // with f64 on the wire
};

// Preset tiny in steps of a few sentences.
Setting preset_setting(backend::Activation activation, DType wire) {
  return {.update = {.wire = wire, .bucket_bytes = 1 << 20},
          .tokens = 60,
          .whole_preset = true,
          .activation = activation,
          .learning_rate = 1e-3F};
}

model::ModelConfig small_model(const Setting& setting) {
  model::ModelConfig config = model::preset("tiny");
  if (!setting.whole_preset) {
    config.encoder_layers = config.decoder_layers = 2;
    config.width = 24;
    config.heads = 2;
    config.feed_forward = 40;
  }
  config.activation = setting.activation;
  config.source_vocabulary = config.target_vocabulary = kVocabulary;
  config.max_length = kLongest;
  config.dropout = config.attention_dropout = config.activation_dropout = 0.1F;
  config.tie = setting.tie;
  config.norm = setting.norm;
  return config;
}

data::Corpus ragged_corpus() {
  PhiloxStream random(5, 1);
  testing::Sentences sides[2];
  for (int i = 0; i < 400; ++i) {
    const auto length = 1 + random.below(kLongest - 2);
    for (testing::Sentences& side : sides) {
      std::vector<int32_t> ids(std::max<size_t>(1, length - random.below(2)));
      for (int32_t& id : ids) {
        id = static_cast<int32_t>(4 + random.below(kVocabulary - 4));
      }
      side.push_back(ids);
    }
  }
  return testing::corpus_of(sides[0], sides[1]);
}

// Counts where relu is open: for how many tokens, [layers, feed-forward], since the last take().
class OpenUnits final : public backend::ForwardingBackend {
 public:
  OpenUnits(backend::Backend& inner, const model::ModelConfig& config)
      : backend::ForwardingBackend(inner),
        width_(config.feed_forward),
        counts_(static_cast<size_t>((config.encoder_layers + config.decoder_layers) * width_)) {}

  void run(const backend::op::Any& op) override {
    backend::ForwardingBackend::run(op);
    const auto* product = std::get_if<backend::op::Linear>(&op);
    if (product == nullptr || product->activation != backend::Activation::relu) {
      return;
    }
    const View& y = product->y;
    for (int64_t row = 0; row < y.rows; ++row) {
      for (int64_t unit = 0; unit < y.cols; ++unit) {
        counts_[first_ + static_cast<size_t>(unit)] += y.host<float>()[row * y.stride + unit] > 0 ? 1 : 0;
      }
    }
    first_ = (first_ + static_cast<size_t>(width_)) % counts_.size();
  }
  std::vector<int64_t> take() { return std::exchange(counts_, std::vector<int64_t>(counts_.size())); }

 private:
  int64_t width_;
  std::vector<int64_t> counts_;
  size_t first_ = 0;  // of the layer that comes next
};

struct Outcome {
  std::vector<double> losses;              // a target token, of each step
  std::vector<std::vector<int64_t>> open;  // OpenUnits of each step, of all ranks
  std::vector<double> norms;
  std::vector<std::vector<int64_t>> pairs;  // of each step, in the order of the ranks
  std::vector<float> weights, average, m, v;
  dist::Traffic traffic, planned;
};

TrainConfig config_of(const Setting& setting) {
  TrainConfig config;
  config.model = small_model(setting);
  config.precision = Precision::f32;
  config.label_smoothing = 0.1F;
  config.seed = 3;
  config.optimizer.max_gradient_norm = 0.8F;
  config.optimizer.ema_decay = setting.average ? 0.9F : 0;
  config.dist.wire = setting.update.wire == DType::f64    ? DistConfig::Wire::f64
                     : setting.update.wire == DType::bf16 ? DistConfig::Wire::bf16
                                                          : DistConfig::Wire::f32;
  config.dist.shard_optimizer = setting.update.shard_optimizer;
  config.dist.bucket_mb = static_cast<double>(setting.update.bucket_bytes) / (1 << 20);
  return config;
}

MemoryPlan plan_of(const Setting& setting, int ranks) {
  MemoryPlan plan;
  plan.batch = {.tokens = setting.tokens, .max_length = kLongest, .seed = 2};
  plan.batch.capacity = {setting.micro_batch, setting.micro_batch, 0};
  plan.batch.part_tokens = setting.update.wire == DType::f64 ? setting.part_tokens : 0;
  plan.layouts.emplace_back(data::MicroBatchCapacity{160, 160, 80}, kLongest, small_model(setting), ranks > 1);
  return plan;
}

std::vector<float> values_of(const View& view) {
  return view.empty() ? std::vector<float>() : std::vector<float>(view.host<float>(), view.host<float>() + view.size());
}

// What is read from a learner, written to it again, changes nothing.
void expect_same_state_again(Learner& learner, const store::CheckpointTensors& all) {
  HostTensors again = learner.host_tensors(HostTensors::load);
  std::vector<std::vector<float>> before;
  const std::vector<store::SlotTensor> slots = again.views().slots;
  for (size_t i = 0; i < slots.size(); ++i) {
    const View own = learner.optimizer().slots()[i].view;
    before.push_back(values_of(own));
    std::copy_n(all.slots[i].view.host<float>(), all.slots[i].view.size(), slots[i].view.host<float>());
    if (own.data != slots[i].view.data) {
      std::fill_n(own.host<float>(), own.size(), NAN);
    }
  }
  again.commit();
  for (size_t i = 0; i < slots.size(); ++i) {
    EXPECT_TRUE(testing::same_bits(values_of(learner.optimizer().slots()[i].view), before[i]));
  }
}

// One rank's part; rank 0's outcome, but for `pairs`, which each rank adds to.
Outcome train_rank(const Setting& setting, const data::Corpus& corpus, dist::Communicator& communicator) {
  const auto cpu = backend::make_cpu_backend(1);
  OpenUnits units(*cpu, small_model(setting));
  FixedShape fixed(*cpu);
  const int ranks = communicator.size();
  Learner learner(setting.fixed_shape ? static_cast<backend::Backend&>(fixed) : units, config_of(setting), corpus,
                  {communicator, communicator},
                  {.plan = plan_of(setting, ranks), .whole_parameters = setting.update.whole_parameters});
  learner.begin();
  Outcome outcome;
  const dist::Traffic before = communicator.traffic();
  for (int i = 0; i < setting.steps; ++i) {
    const data::TrainStep step = learner.batcher().next();
    outcome.pairs.emplace_back();
    for (const data::HostBatch& micro_batch : step.micro_batches) {
      outcome.pairs.back().insert(outcome.pairs.back().end(), micro_batch.pairs.begin(), micro_batch.pairs.end());
    }
    StepInput input = learner.input_of(step, i, setting.learning_rate * std::min(1.0F, static_cast<float>(i + 1) / 20));
    input.pause = communicator.rank() == 1 && i == 30 ? 1.0 : 0.0;
    learner.give(step, input);
    const StepResult result = learner.take();
    EXPECT_EQ(result.sums.totals.tokens, static_cast<double>(step.target_tokens));
    EXPECT_EQ(result.sums.pause, ranks > 1 && i == 30 ? 1 : 0);
    EXPECT_GE(result.clock.end, result.clock.begin);
    EXPECT_GE(result.clock.communication_seconds(), 0);
    outcome.losses.push_back(result.sums.totals.nll / result.sums.totals.tokens);
    outcome.norms.push_back(result.update.norm);
    std::vector<int64_t> open = units.take();
    if (step.micro_batches.empty()) {  // those of a pad
      std::fill(open.begin(), open.end(), 0);
    }
    outcome.open.push_back(open);
    outcome.planned = outcome.planned + learner.planned_traffic(step);
  }
  outcome.traffic = {communicator.traffic().sent - before.sent, communicator.traffic().received - before.received};
  learner.update().complete(learner.weights().average());
  HostTensors tensors = learner.host_tensors(HostTensors::save);
  tensors.read();
  const store::CheckpointTensors all = tensors.views();
  outcome.weights = values_of(all.weights);
  outcome.average = values_of(all.ema);
  outcome.m = values_of(all.slots.at(0).view);
  outcome.v = values_of(all.slots.at(1).view);
  expect_same_state_again(learner, all);
  return outcome;
}

Outcome train(const Setting& setting) {
  const data::Corpus corpus = ragged_corpus();
  if (setting.ranks == 1) {
    return train_rank(setting, corpus, *dist::make_single_communicator());
  }
  std::vector<Outcome> outcomes(static_cast<size_t>(setting.ranks));
  testing::with_ranks(setting.ranks, [&](dist::Communicator& communicator) {
    outcomes[static_cast<size_t>(communicator.rank())] = train_rank(setting, corpus, communicator);
  });
  Outcome& first = outcomes[0];
  for (size_t rank = 1; rank < outcomes.size(); ++rank) {
    EXPECT_TRUE(testing::same_bits(outcomes[rank].weights, first.weights)) << "rank " << rank;
    EXPECT_TRUE(testing::same_bits(outcomes[rank].losses, first.losses)) << "rank " << rank;
    for (size_t step = 0; step < first.pairs.size(); ++step) {
      std::transform(first.open[step].begin(), first.open[step].end(), outcomes[rank].open[step].begin(),
                     first.open[step].begin(), std::plus());
      first.pairs[step].insert(first.pairs[step].end(), outcomes[rank].pairs[step].begin(),
                               outcomes[rank].pairs[step].end());
    }
  }
  return first;
}

void expect_same_curve(const Outcome& actual, const Outcome& expected, const std::string& what) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  EXPECT_EQ(actual.pairs, expected.pairs) << what;
  for (size_t i = 0; i < actual.losses.size(); ++i) {
    EXPECT_TRUE(std::abs(actual.losses[i] / expected.losses[i] - 1) <= 1e-5)
        << what << ", step " << i << ": " << actual.losses[i] << " instead of " << expected.losses[i];
  }
}

void expect_same_bits(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_TRUE(testing::same_bits(a.losses, b.losses)) << what;
  EXPECT_TRUE(testing::same_bits(a.norms, b.norms)) << what;
  EXPECT_TRUE(testing::same_bits(a.weights, b.weights)) << what;
  EXPECT_TRUE(testing::same_bits(a.average, b.average)) << what;
  EXPECT_TRUE(testing::same_bits(a.m, b.m)) << what;
  EXPECT_TRUE(testing::same_bits(a.v, b.v)) << what;
}

TEST(SeveralRanks, TheCurveDoesNotDependOnTheNumberOfRanks) {
  const Outcome alone = train({});
  EXPECT_LT(alone.losses.back(), alone.losses.front() - 0.1);
  for (const int ranks : {2, 3, 4}) {
    for (const int64_t micro_batch : {0, 40}) {
      Setting setting{.ranks = ranks, .micro_batch = micro_batch};
      const std::string what = fmt::format("{} ranks, micro-batches of {}", ranks, micro_batch);
      const Outcome whole = train(setting);
      expect_same_curve(whole, alone, what);
      setting.update.shard_optimizer = true;
      expect_same_bits(train(setting), whole, what + ", sharded");
    }
  }
}

// The largest relative difference of the losses of the steps [begin, end).
double loss_difference(const Outcome& a, const Outcome& b, size_t begin, size_t end) {
  double largest = 0;
  for (size_t i = begin; i < end; ++i) {
    const double difference = std::abs(a.losses.at(i) / b.losses.at(i) - 1);
    largest = difference > largest || std::isnan(difference) ? difference : largest;  // NaN stays
  }
  return largest;
}

// With f32 on the wire. A row's numbers do not depend on the other rows, so the first step's loss is the same but for
// the sum of the rows'. Then the weights differ by rounding, which stays rounding where the derivative is continuous
// (gelu). With relu it does until the first unit within rounding of zero flips, whose part of the gradient comes or
// goes as a whole.
TEST(SeveralRanks, OnlyAFlippedUnitMakesMoreThanRounding) {
  for (const backend::Activation activation : {backend::Activation::gelu, backend::Activation::relu}) {
    Setting setting = preset_setting(activation, DType::f32);
    const Outcome alone = train(setting);
    EXPECT_LT(alone.losses.back(), alone.losses.front() - 0.1);
    for (const int ranks : {2, 4}) {
      setting.ranks = ranks;
      setting.micro_batch = ranks == 2 ? 0 : 24;
      const Outcome other = train(setting);
      const auto flip = std::mismatch(alone.open.begin(), alone.open.end(), other.open.begin()).first;
      const auto until = static_cast<size_t>(flip - alone.open.begin());
      const size_t agreeing = std::min(until + 1, alone.losses.size());  // the next step has weights that feel the flip
      const std::string what = fmt::format("{} ranks, {} steps without a flip", ranks, until);
      EXPECT_GE(until, 1U) << what;
      EXPECT_TRUE(loss_difference(other, alone, 0, 1) <= 1e-13) << what;
      EXPECT_TRUE(loss_difference(other, alone, 0, agreeing) <= 1e-6) << what;
      fmt::print("{}: {:.1e}, then {:.1e}\n", what, loss_difference(other, alone, 0, agreeing),
                 loss_difference(other, alone, agreeing, 50));
    }
  }
}

// The same weights to the last bit, and losses that differ by the order of f64 sums.
void expect_same_training(const Outcome& actual, const Outcome& expected, const std::string& what) {
  EXPECT_EQ(actual.pairs, expected.pairs) << what;
  EXPECT_TRUE(testing::same_bits(actual.weights, expected.weights)) << what;
  EXPECT_TRUE(testing::same_bits(actual.average, expected.average)) << what;
  EXPECT_TRUE(testing::same_bits(actual.m, expected.m)) << what;
  EXPECT_TRUE(testing::same_bits(actual.v, expected.v)) << what;
  EXPECT_EQ(actual.open, expected.open) << what;
  EXPECT_TRUE(loss_difference(actual, expected, 0, expected.losses.size()) <= 1e-13) << what;
}

// Parts of a step are added up without rounding, so it does not matter who has which.
// As an optimizer may ask for it whose arithmetic is not element by element.
TEST(SeveralRanks, ShardsMayEndAtTheEndsOfParameters) {
  for (const DType wire : {DType::f32, DType::f64}) {
    for (const int ranks : {2, 3}) {
      Setting setting{.ranks = ranks, .update = {.wire = wire, .bucket_bytes = 24000}, .average = true, .steps = 12};
      const Outcome whole = train(setting);
      setting.update.shard_optimizer = setting.update.whole_parameters = true;
      expect_same_bits(train(setting), whole, fmt::format("{} ranks, {}", ranks, name_of(wire)));
    }
  }
}

TEST(SeveralRanks, InF64TheWeightsDoNotDependOnTheNumberOfRanks) {
  Setting setting{.update = {.wire = DType::f64, .bucket_bytes = 24000}, .average = true};
  const Outcome alone = train(setting);
  EXPECT_LT(alone.losses.back(), alone.losses.front() - 0.1);
  for (const int ranks : {1, 2, 3, 4, 6}) {
    for (const int64_t micro_batch : {0, 60}) {
      setting.ranks = ranks;
      setting.micro_batch = micro_batch;
      setting.update.shard_optimizer = micro_batch == 0;
      expect_same_training(train(setting), alone, fmt::format("{} ranks, micro-batches of {}", ranks, micro_batch));
    }
  }
}

TEST(SeveralRanks, InF64APresetsWeightsDoNotDependOnTheNumberOfRanks) {
  for (const backend::Activation activation : {backend::Activation::relu, backend::Activation::gelu}) {
    Setting setting = preset_setting(activation, DType::f64);
    const Outcome alone = train(setting);
    EXPECT_LT(alone.losses.back(), alone.losses.front() - 0.1);
    for (const int ranks : {2, 3, 4}) {
      setting.ranks = ranks;
      setting.micro_batch = ranks == 3 ? 24 : 0;
      expect_same_training(train(setting), alone, fmt::format("{} ranks", ranks));
    }
  }
}

TEST(SeveralRanks, InF64AnyModelAndAnyParts) {
  for (const model::Tie tie : {model::Tie::all, model::Tie::output, model::Tie::none}) {
    for (const model::NormPlace norm : {model::NormPlace::pre, model::NormPlace::post}) {
      for (const int64_t part_tokens : {1, 7, 1000}) {  // many parts of one sentence; the least number of parts
        Setting setting{.update = {.wire = DType::f64, .bucket_bytes = 24000},
                        .tie = tie,
                        .norm = norm,
                        .steps = 8,
                        .part_tokens = part_tokens};
        const Outcome alone = train(setting);
        setting.ranks = part_tokens == 7 ? 4 : 3;
        expect_same_training(train(setting), alone, fmt::format("parts of {}", part_tokens));
        setting.update.shard_optimizer = true;
        expect_same_training(train(setting), alone, fmt::format("parts of {}, sharded", part_tokens));
      }
    }
  }
}

// Parts cannot be shared out evenly: the step is cut differently, and the sums differ by rounding.
TEST(SeveralRanks, InF64OtherNumbersOfRanksAreNear) {
  Setting setting{.update = {.wire = DType::f64, .bucket_bytes = 24000}, .steps = 20};
  const Outcome alone = train(setting);
  setting.ranks = 5;
  expect_same_curve(train(setting), alone, "five ranks");
}

TEST(SeveralRanks, AnyModel) {
  for (const model::Tie tie : {model::Tie::all, model::Tie::output, model::Tie::none}) {
    for (const model::NormPlace norm : {model::NormPlace::pre, model::NormPlace::post}) {
      Setting setting{.tie = tie, .norm = norm, .average = true, .steps = 12};
      const Outcome alone = train(setting);
      setting.ranks = 3;
      const Outcome three = train(setting);
      expect_same_curve(three, alone, "three ranks");
      setting.update.shard_optimizer = true;
      expect_same_bits(train(setting), three, "three ranks, sharded");
    }
  }
}

TEST(SeveralRanks, MoreRanksThanSentences) {
  Setting setting{.tokens = 30, .steps = 20};
  const Outcome alone = train(setting);
  setting.ranks = 4;
  expect_same_curve(train(setting), alone, "four ranks");
  setting.update.wire = DType::f64;
  const Outcome four = train(setting);
  setting.ranks = 1;
  expect_same_training(train(setting), four, "four ranks, f64");
}

TEST(SeveralRanks, AtAFixedShape) {
  for (const int64_t micro_batch : {0, 60}) {
    Setting setting{.ranks = 3, .micro_batch = micro_batch, .steps = 20};
    const Outcome exact = train(setting);
    setting.fixed_shape = true;
    expect_same_curve(train(setting), exact, "fixed shape");
    setting.update.wire = DType::bf16;
    setting.update.shard_optimizer = true;
    const Outcome sharded = train(setting);
    setting.update.shard_optimizer = false;
    expect_same_bits(sharded, train(setting), "fixed shape, bf16, sharded");
  }
}

TEST(SeveralRanks, InBf16OnTheWire) {
  Setting setting{.ranks = 2, .steps = 30};
  const Outcome exact = train(setting);
  setting.update.wire = DType::bf16;
  const Outcome rounded = train(setting);
  for (size_t i = 0; i < exact.losses.size(); ++i) {
    EXPECT_NEAR(rounded.losses[i] / exact.losses[i], 1, 0.01) << i;
  }
  EXPECT_FALSE(testing::same_bits(rounded.weights, exact.weights));
  setting.update.shard_optimizer = true;
  expect_same_bits(train(setting), rounded, "sharded");
}

TEST(SeveralRanks, TheBytesAreThoseOfThePlan) {
  for (const int ranks : {2, 3}) {
    for (const DType wire : {DType::f32, DType::bf16, DType::f64}) {
      Setting setting{.ranks = ranks, .steps = 10};
      setting.update.wire = wire;
      for (const bool sharded : {false, true}) {
        setting.update.shard_optimizer = sharded;
        const Outcome outcome = train(setting);
        EXPECT_EQ(outcome.traffic.sent, outcome.planned.sent);
        EXPECT_EQ(outcome.traffic.received, outcome.planned.received);
      }
    }
  }
}

TEST(SeveralRanks, BucketsOfAnySize) {
  Setting setting{.ranks = 3, .steps = 10};
  const Outcome small = train(setting);
  for (const int64_t bytes : {int64_t{1}, int64_t{1000}, int64_t{1} << 30}) {
    setting.update.bucket_bytes = bytes;
    expect_same_curve(train(setting), small, fmt::format("buckets of {} bytes", bytes));
  }
}

}  // namespace
}  // namespace tandem::train
