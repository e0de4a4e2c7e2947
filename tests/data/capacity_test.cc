#include <gtest/gtest.h>

#include <algorithm>

#include "core/philox.h"
#include "data/batcher.h"
#include "data/corpus_of.h"

namespace tandem::data {
namespace {

// Source lengths are bell-shaped around `mean`; targets are `ratio` times as long, with noise.
Corpus make_corpus(int64_t pairs, double mean, double ratio) {
  PhiloxStream random(9, 9);
  const auto draw = [&random](double around, double spread) {
    double sum = 0;
    for (int i = 0; i < 6; ++i) {
      sum += random.next() * 0x1p-32 - 0.5;
    }
    return std::max<int64_t>(1, static_cast<int64_t>(around + spread * sum));
  };
  std::vector<std::vector<int32_t>> source, target;
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t length = draw(mean, mean / 1.5);
    source.emplace_back(static_cast<size_t>(length), 9);
    target.emplace_back(static_cast<size_t>(draw(ratio * static_cast<double>(length), 3)), 9);
  }
  return testing::corpus_of(source, target);
}

// Nearly every step takes one micro-batch with few rows that hold no token, whichever side is longer.
TEST(MicroBatchCapacities, ATokenBudgetNearlyAlwaysFitsOneMicroBatch) {
  for (const double ratio : {0.7, 1.0, 1.3}) {
    const Corpus corpus = make_corpus(6000, 25, ratio);
    BatchConfig config{.tokens = 8000, .max_length = 256};
    const auto capacities = micro_batch_capacities(corpus, config, 0);
    ASSERT_EQ(capacities.size(), 1U);
    config.capacity = capacities[0];
    Batcher batcher(corpus, config);
    double micro_batches = 0, tokens = 0;
    constexpr int kSteps = 100;
    for (int i = 0; i < kSteps; ++i) {
      const TrainStep step = batcher.next();
      micro_batches += static_cast<double>(step.micro_batches.size());
      tokens += static_cast<double>(step.source_tokens + step.target_tokens);
    }
    EXPECT_LE(micro_batches, 1.03 * kSteps) << ratio;
    const double dead =
        1 - tokens / micro_batches / static_cast<double>(config.capacity.source + config.capacity.target);
    EXPECT_LE(dead, 0.03) << ratio;
    EXPECT_GE(dead, 0.0) << ratio;
  }
}

TEST(MicroBatchCapacities, ASentenceBudgetHasSeveralSizes) {
  const Corpus corpus = make_corpus(6000, 25, 1.1);
  BatchConfig config{.sentences = 100, .max_length = 256};
  const auto capacities = micro_batch_capacities(corpus, config, 0);
  ASSERT_GT(capacities.size(), 3U);
  ASSERT_LE(capacities.size(), 8U);
  for (size_t i = 1; i < capacities.size(); ++i) {
    EXPECT_GE(capacities[i].source, capacities[i - 1].source);
    EXPECT_GE(capacities[i].target, capacities[i - 1].target);
  }
  config.capacity = capacities.back();
  Batcher batcher(corpus, config);
  size_t micro_batches = 0;
  for (int i = 0; i < 100; ++i) {
    micro_batches += batcher.next().micro_batches.size();
  }
  EXPECT_LE(micro_batches, 102U);
}

// A rank's part of a step nearly always fits one micro-batch, which has room for little more than that part.
TEST(MicroBatchCapacities, RanksHaveRoomForTheirParts) {
  const Corpus corpus = make_corpus(6000, 25, 1.1);
  for (const BatchConfig& budget :
       {BatchConfig{.tokens = 8000, .max_length = 256}, BatchConfig{.sentences = 300, .max_length = 256}}) {
    for (const int ranks : {2, 3, 5}) {
      BatchConfig config = budget;
      const auto capacities = micro_batch_capacities(corpus, config, 0, ranks);
      config.capacity = capacities.back();
      double micro_batches = 0, tokens = 0, rows = 0;
      constexpr int kSteps = 50;
      for (int rank = 0; rank < ranks; ++rank) {
        Batcher batcher(corpus, config, rank, ranks);
        for (int i = 0; i < kSteps; ++i) {
          for (const HostBatch& micro_batch : batcher.next().micro_batches) {
            const auto source = static_cast<int64_t>(micro_batch.source.tokens.size());
            const auto target = static_cast<int64_t>(micro_batch.target.tokens.size());
            const auto fitting = std::find_if(
                capacities.begin(), capacities.end(),
                [&](const MicroBatchCapacity& size) { return source <= size.source && target <= size.target; });
            ASSERT_NE(fitting, capacities.end());
            micro_batches += 1;
            tokens += static_cast<double>(source + target);
            rows += static_cast<double>(fitting->source + fitting->target);
          }
        }
      }
      EXPECT_LE(micro_batches, 1.03 * kSteps * ranks) << budget.sentences << " sentences, " << ranks << " ranks";
      EXPECT_LE(1 - tokens / rows, 0.2) << budget.sentences << " sentences, " << ranks << " ranks";
    }
  }
}

TEST(MicroBatchCapacities, TheLongestPairAlwaysFits) {
  const Corpus corpus = make_corpus(500, 25, 1.2);
  BatchConfig config{.tokens = 20000, .max_length = 256};
  config.capacity = micro_batch_capacities(corpus, config, 1)[0];
  Batcher batcher(corpus, config);  // fails if a pair does not fit
  EXPECT_GT(batcher.next().micro_batches.size(), 100U);
}

}  // namespace
}  // namespace tandem::data
