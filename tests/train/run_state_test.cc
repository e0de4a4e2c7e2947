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

// ---- pauses

// Nothing is due but what a test asks for.
TrainConfig quiet() {
  TrainConfig config;
  config.stop = {.max_steps = 0};
  config.validation.every_steps = 0;
  config.checkpoint.every_steps = 0;
  config.checkpoint.every_minutes = 0;
  return config;
}

TEST(Pauses, NothingIsDueWhereNothingIsAskedFor) {
  const TrainConfig config = quiet();
  store::CheckpointState state;
  state.step = 100;
  const RunClock clock{.now = 1e9};
  EXPECT_FALSE(pause_due(config, state, 100, 1e9));
  EXPECT_FALSE(time_for_pause(config, clock));
  EXPECT_FALSE(validation_due(config.validation, state, clock));
  EXPECT_FALSE(checkpoint_due(config.checkpoint, state, 7, clock));
  EXPECT_FALSE(end_reached(config.stop, state));
  EXPECT_EQ(share_done(config.stop, state), 0);
}

TEST(Pauses, GoByTheStepsThatWereGiven) {
  TrainConfig config = quiet();
  store::CheckpointState state;
  state.step = 18;  // two more are under way
  config.validation.every_steps = 10;
  EXPECT_TRUE(pause_due(config, state, 20, 0));
  EXPECT_FALSE(pause_due(config, state, 21, 0));
  config = quiet();
  config.checkpoint.every_steps = 7;
  EXPECT_TRUE(pause_due(config, state, 21, 0));
  EXPECT_FALSE(pause_due(config, state, 20, 0));
  config = quiet();
  config.stop.max_steps = 20;
  EXPECT_TRUE(pause_due(config, state, 20, 0));
  EXPECT_FALSE(pause_due(config, state, 19, 0));
  config = quiet();
  config.stop.max_epochs = 1.5;
  EXPECT_TRUE(pause_due(config, state, 20, 1.5));
  EXPECT_FALSE(pause_due(config, state, 20, 1.49));
}

TEST(Pauses, TooManySkippedStepsAreAReason) {
  const TrainConfig config = quiet();
  store::CheckpointState state;
  state.skipped_in_a_row = config.nonfinite.max_skips - 1;
  EXPECT_FALSE(pause_due(config, state, 3, 0));
  ++state.skipped_in_a_row;
  EXPECT_TRUE(pause_due(config, state, 3, 0));
}

TEST(Pauses, EachPeriodOfTimeHasItsOwnBeginning) {
  TrainConfig config = quiet();
  config.stop.max_minutes = 10;
  EXPECT_FALSE(time_for_pause(config, {.now = 599}));
  EXPECT_TRUE(time_for_pause(config, {.now = 600}));
  config = quiet();
  config.validation.every_minutes = 1;
  EXPECT_FALSE(time_for_pause(config, {.now = 100, .validated = 41, .saved = 0}));
  EXPECT_TRUE(time_for_pause(config, {.now = 100, .validated = 40, .saved = 99}));
  config = quiet();
  config.checkpoint.every_minutes = 1;
  EXPECT_FALSE(time_for_pause(config, {.now = 100, .validated = 0, .saved = 41}));
  EXPECT_TRUE(time_for_pause(config, {.now = 100, .validated = 99, .saved = 40}));
}

TEST(Pauses, AStepIsValidatedAndSavedOnce) {
  TrainConfig config = quiet();
  config.validation.every_steps = config.checkpoint.every_steps = 10;
  store::CheckpointState state;
  state.step = 20;
  EXPECT_TRUE(validation_due(config.validation, state, {}));
  EXPECT_TRUE(checkpoint_due(config.checkpoint, state, 10, {}));
  state.metrics_step = 20;
  EXPECT_FALSE(validation_due(config.validation, state, {}));
  EXPECT_FALSE(checkpoint_due(config.checkpoint, state, 20, {}));
  state.step = 21;
  EXPECT_FALSE(validation_due(config.validation, state, {}));
  EXPECT_FALSE(checkpoint_due(config.checkpoint, state, 20, {}));
  config.validation.every_minutes = config.checkpoint.every_minutes = 0.5;
  EXPECT_TRUE(validation_due(config.validation, state, {.now = 30}));
  EXPECT_TRUE(checkpoint_due(config.checkpoint, state, 20, {.now = 30}));
  EXPECT_FALSE(checkpoint_due(config.checkpoint, state, 21, {.now = 30}));  // there is nothing new
}

TEST(Pauses, TheFirstLimitEndsTheRun) {
  StopConfig stop{.max_steps = 100, .max_epochs = 2, .max_minutes = 5, .patience = 3};
  store::CheckpointState state;
  state.step = 99;
  state.epochs_done = 1;
  state.elapsed_seconds = 60;
  EXPECT_FALSE(end_reached(stop, state));
  EXPECT_DOUBLE_EQ(share_done(stop, state), 0.99);
  state.bad_validations = 3;
  state.best_step = 50;
  EXPECT_EQ(end_reached(stop, state), "3 validations without a better nll (best at step 50)");
  state.elapsed_seconds = 300;
  EXPECT_EQ(end_reached(stop, state), "5 minutes are over");
  state.epochs_done = 2;
  EXPECT_EQ(end_reached(stop, state), "all 2 epochs are done");
  state.step = 100;
  EXPECT_EQ(end_reached(stop, state), "all 100 steps are done");
  EXPECT_EQ(share_done(stop, state), 1);
}

}  // namespace
}  // namespace tandem::train
