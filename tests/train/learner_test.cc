#include "train/learner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/forwarding.h"
#include "core/philox.h"
#include "data/corpus_of.h"
#include "train/small_config.h"
#include "train/step_bench.h"

namespace tandem::train {
namespace {

data::Corpus small_corpus() {
  PhiloxStream random(5, 1);
  testing::Sentences sides[2];
  for (int i = 0; i < 60; ++i) {
    for (testing::Sentences& side : sides) {
      std::vector<int32_t> ids(1 + random.below(18));
      for (int32_t& id : ids) {
        id = static_cast<int32_t>(4 + random.below(36));
      }
      side.push_back(ids);
    }
  }
  return testing::corpus_of(sides[0], sides[1]);
}

std::vector<float> train(Learner& learner, int64_t steps) {
  learner.batcher().seek({});
  for (int64_t i = 0; i < steps; ++i) {
    const data::TrainStep step = learner.batcher().next();
    learner.give(step, learner.input_of(step, i, 1e-3));
    EXPECT_EQ(learner.take().update.updates, i + 1);
  }
  const View flat = learner.weights().average();
  return {flat.host<float>(), flat.host<float>() + flat.size()};
}

TEST(Learner, BeginsAnew) {
  TrainConfig config = small_config();
  config.optimizer.ema_decay = 0.9F;
  const data::Corpus corpus = small_corpus();
  const auto backend = backend::make_cpu_backend(1);
  const auto alone = dist::make_single_communicator();
  Learner learner(*backend, config, corpus, {*alone, *alone});
  learner.begin();
  const std::vector<float> first = train(learner, 3);
  learner.begin();
  EXPECT_EQ(train(learner, 3), first);
  learner.begin([](const View& weights) { weights.host<float>()[0] += 1; });
  EXPECT_NE(train(learner, 3), first);
}

TEST(Learner, ACheckpointIsTheWeightsTheirAverageAndTheSlots) {
  TrainConfig config = small_config();
  const data::Corpus corpus = small_corpus();
  const auto backend = backend::make_cpu_backend(1);
  const auto alone = dist::make_single_communicator();
  const Learner plain(*backend, config, corpus, {*alone, *alone});
  const auto parameters = static_cast<double>(plain.model().parameters().count());
  EXPECT_EQ(plain.checkpoint_bytes(), 3 * sizeof(float) * parameters);
  config.optimizer.ema_decay = 0.9F;
  EXPECT_EQ(Learner(*backend, config, corpus, {*alone, *alone}).checkpoint_bytes(), 4 * sizeof(float) * parameters);
}

// Has a little memory only.
class SmallDevice final : public backend::ForwardingBackend {
 public:
  SmallDevice(backend::Backend& inner, size_t bytes) : backend::ForwardingBackend(inner), bytes_(bytes) {}
  MemorySizes memory_sizes() const override { return {.free = bytes_, .total = bytes_}; }
  Buffer allocate(size_t bytes) override {
    if (bytes > bytes_) {
      throw backend::OutOfMemory("no memory");
    }
    bytes_ -= bytes;
    return backend::ForwardingBackend::allocate(bytes);
  }

 private:
  size_t bytes_;
};

TEST(Learner, AModelThatDoesNotFitIsOneLineWithBothFigures) {
  const TrainConfig config = small_config();
  const data::Corpus corpus = small_corpus();
  const auto backend = backend::make_cpu_backend(1);
  SmallDevice device(*backend, 20000);
  const auto alone = dist::make_single_communicator();
  try {
    const Learner learner(device, config, corpus, {*alone, *alone});
    FAIL() << "it fits";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "the model does not fit: its 6,080 parameters take 147 kB with gradients and the optimizer's state, "
                 "and 20.0 kB are free; choose a smaller model (nvidia-smi shows what else uses memory)");
  }
}

bool has_op(const StepBench& bench, const std::string& name) {
  return std::any_of(bench.profile.begin(), bench.profile.end(),
                     [&name](const backend::OpProfile& op) { return op.name.starts_with(name); });
}

// Moving average, clipping and the update over several ranks included.
TEST(StepBench, TimesTheOpsThatAreTrained) {
  TrainConfig config = small_config();
  const data::Corpus corpus = small_corpus();
  StepBenchOptions options;
  options.warm_up = 1;
  options.steps = 2;
  EXPECT_FALSE(has_op(measure_step(corpus, config, options), "moving_average"));
  config.optimizer.ema_decay = 0.9F;
  config.optimizer.max_gradient_norm = 0.1F;
  for (const int ranks : {1, 3}) {
    options.ranks = ranks;
    const StepBench bench = measure_step(corpus, config, options);
    EXPECT_TRUE(has_op(bench, "moving_average"));
    EXPECT_NEAR(bench.target_tokens, 90, 12);
    EXPECT_GT(bench.seconds, 0);
  }
}

}  // namespace
}  // namespace tandem::train
