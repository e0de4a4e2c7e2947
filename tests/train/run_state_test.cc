#include "train/run_state.h"

#include <gtest/gtest.h>

namespace tandem::train {
namespace {

data::TrainStep some_step() {
  data::TrainStep step;
  step.pairs = 3;
  step.source_tokens = 20;
  step.target_tokens = 25;
  step.after = {1, 7};
  step.epochs_done = 1.25;
  return step;
}

TEST(RunState, CountsStepsAndThoseThatWereSkipped) {
  store::CheckpointState state;
  count_step(state, some_step(), {.updates = 1});
  count_step(state, some_step(), {.finite = 0, .updates = 1});
  count_step(state, some_step(), {.finite = 0, .updates = 1});
  EXPECT_EQ(state.step, 3);
  EXPECT_EQ(state.updates, 1);
  EXPECT_EQ(state.skipped, 2);
  EXPECT_EQ(state.skipped_in_a_row, 2);
  EXPECT_EQ(state.pairs, 9);
  EXPECT_EQ(state.source_tokens, 60);
  EXPECT_EQ(state.target_tokens, 75);
  EXPECT_EQ(state.cursor.epoch, 1);
  EXPECT_EQ(state.cursor.index, 7);
  EXPECT_EQ(state.epochs_done, 1.25);
  count_step(state, some_step(), {.updates = 2});
  EXPECT_EQ(state.skipped, 2);
  EXPECT_EQ(state.skipped_in_a_row, 0);
}

TEST(RunState, RemembersTheBestValidation) {
  for (const store::Metric metric : {store::Metric::nll, store::Metric::bleu}) {
    const double better = metric == store::Metric::nll ? -1 : 1;
    store::CheckpointState state;
    const auto validate = [&](int64_t step, double score) {
      state.step = step;
      count_validation(state, {{name_of(metric), score}, {"other", 1}}, metric);
    };
    validate(10, 5);
    validate(20, 5 + better);
    validate(30, 5 + better);  // no better
    validate(40, 5);
    EXPECT_EQ(state.validations, 4);
    EXPECT_EQ(state.bad_validations, 2);
    EXPECT_EQ(state.best_step, 20);
    EXPECT_EQ(state.best_score, 5 + better);
    EXPECT_EQ(state.metrics_step, 40);
    EXPECT_EQ(state.metrics.at("other"), 1);
    validate(50, 5 + 2 * better);
    EXPECT_EQ(state.bad_validations, 0);
  }
}

TEST(RunState, AValidationWithoutTheMetricIsNeitherBetterNorWorse) {
  store::CheckpointState state;
  state.step = 10;
  count_validation(state, {{"nll", 2}}, store::Metric::bleu);
  EXPECT_EQ(state.validations, 1);
  EXPECT_EQ(state.bad_validations, 0);
  EXPECT_FALSE(state.best_score);
}

TEST(RunState, RollingBackKeepsWhatWasLearnedFromTheFailure) {
  store::CheckpointState failed, former;
  failed.step = 90;
  failed.skipped = 12;
  failed.skipped_in_a_row = 10;
  failed.rollbacks = 1;
  failed.elapsed_seconds = 500;
  failed.learning_rate_factor = 0.5;
  former.step = 50;
  former.updates = 48;
  former.skipped = 2;
  former.elapsed_seconds = 300;
  const store::CheckpointState now = rolled_back(failed, former, 0.5);
  EXPECT_EQ(now.step, 50);
  EXPECT_EQ(now.updates, 48);
  EXPECT_EQ(now.skipped, 12);
  EXPECT_EQ(now.skipped_in_a_row, 0);
  EXPECT_EQ(now.rollbacks, 2);
  EXPECT_EQ(now.elapsed_seconds, 500);
  EXPECT_EQ(now.learning_rate_factor, 0.25);
}

}  // namespace
}  // namespace tandem::train
