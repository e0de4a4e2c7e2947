// Scores of given pairs, against log-probabilities made from the model's logits in double.
#include "decode/pair_scorer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/philox.h"
#include "decode/packed_lines.h"
#include "text/subwords.h"

namespace tandem::decode {
namespace {

using Ids = std::vector<int32_t>;

class PairScorerTest : public ::testing::Test {
 protected:
  PairScorerTest() : backend(backend::make_cpu_backend(1)), model(*backend, config()) {
    masters.resize(static_cast<size_t>(model.parameters().flat_size()));
    const View view = host_view(masters.data(), 1, model.parameters().flat_size());
    initialize(view, model.parameters(), 4);
    weights = {view, view};
    PhiloxStream random(3, 4);
    for (size_t pair = 0; pair < 40; ++pair) {
      for (std::vector<Ids>* side : {&sources, &targets}) {
        Ids ids(random.below(12));
        for (int32_t& id : ids) {
          id = 4 + static_cast<int32_t>(random.below(26));
        }
        side->push_back(ids);
      }
    }
  }

  static model::ModelConfig config() {
    model::ModelConfig small;
    small.source_vocabulary = small.target_vocabulary = 30;
    small.encoder_layers = small.decoder_layers = 2;
    small.width = 16;
    small.heads = 2;
    small.feed_forward = 32;
    small.max_length = 20;
    return small;
  }

  PairScore by_logits(const Ids& source, const Ids& target) {
    Arena arena([this](size_t bytes) { return backend->allocate(bytes); });
    PackedLines source_side, target_side;
    source_side.add_source(source);
    target_side.add_target(target);
    model::Batch batch;
    batch.source = source_side.upload(*backend, arena);
    batch.target = target_side.upload(*backend, arena);
    const View logits = model.logits(weights, batch, arena);
    Ids labels = target;
    labels.push_back(text::kEos);
    PairScore score;
    for (size_t t = 0; t < labels.size(); ++t) {
      const float* row = logits.host<float>() + t * static_cast<size_t>(logits.stride);
      double sum = 0;
      for (int64_t v = 0; v < logits.cols; ++v) {
        sum += std::exp(double{row[v]});
      }
      score.log_probability += row[labels[t]] - std::log(sum);
      score.correct += std::max_element(row, row + logits.cols) - row == labels[t];
      ++score.tokens;
    }
    return score;
  }

  std::unique_ptr<backend::Backend> backend;
  model::Transformer model;
  std::vector<float> masters;
  nn::Weights weights;
  std::vector<Ids> sources, targets;
};

TEST_F(PairScorerTest, LogProbabilitiesAreThoseOfTheLogitsWhateverTheBatch) {
  PairScorer scorer(*backend, model, weights);
  const std::vector<PairScore> all = scorer.score(sources, targets, {});
  CallOptions small;
  small.batch = 3;
  small.batch_tokens = 20;
  const std::vector<PairScore> in_parts = scorer.score(sources, targets, small);
  ASSERT_EQ(all.size(), sources.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const PairScore expected = by_logits(sources[i], targets[i]);
    EXPECT_NEAR(all[i].log_probability, expected.log_probability, 1e-4) << i;
    EXPECT_EQ(all[i].tokens, static_cast<int64_t>(targets[i].size()) + 1);
    EXPECT_EQ(all[i].correct, expected.correct) << i;
    EXPECT_EQ(in_parts[i].log_probability, all[i].log_probability) << i;
    EXPECT_EQ(in_parts[i].correct, all[i].correct) << i;
  }
}

TEST_F(PairScorerTest, PairsThatAreTooLongAreLeftOut) {
  PairScorer scorer(*backend, model, weights);
  const std::vector<PairScore> before = scorer.score(sources, targets, {});
  sources[5] = Ids(20, 7);
  targets[9] = Ids(20, 7);
  targets[11] = Ids(19, 7);
  const std::vector<PairScore> scores = scorer.score(sources, targets, {});
  EXPECT_TRUE(scores[5].too_long());
  EXPECT_TRUE(scores[9].too_long());
  EXPECT_EQ(scores[11].tokens, 20);
  EXPECT_EQ(scores[12].log_probability, before[12].log_probability);
  targets.pop_back();
  EXPECT_THROW(scorer.score(sources, targets, {}), Error);
  EXPECT_TRUE(scorer.score({}, {}, {}).empty());
}

}  // namespace
}  // namespace tandem::decode
