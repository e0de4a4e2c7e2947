// Every key of a training config, once: reading, writing and comparing all walk this list.
#pragma once

#include "model/config_fields.h"
#include "train/config.h"

namespace tandem {

// Visits as visit_model does, and calls visit.number_or(key, member, word) for a number for which the word stands for
// 0. Ranges of the schedule are checked by its own problems().
template <class Visit>
void visit_schedule(ScheduleConfig& c, Visit& visit) {
  visit.choice("schedule.policy", c.policy,
               Choices{"fixed_lr", "piecewise_constant", "exp_decay", "poly_decay", "cosine_decay",
                       "transformer_policy", "inv_poly_decay"});
  visit("schedule.learning_rate", c.learning_rate, Range{});
  visit("schedule.warmup_steps", c.warmup_steps, Range{});
  visit("schedule.d_model", c.d_model, at_least(0));
  visit("schedule.coefficient", c.coefficient, Range{});
  visit("schedule.max_lr", c.max_lr, Range{});
  visit("schedule.decay_steps", c.decay_steps, at_least(0));
  visit("schedule.begin_decay_at", c.begin_decay_at, Range{});
  visit("schedule.min_lr", c.min_lr, Range{});
  visit("schedule.power", c.power, Range{});
  visit("schedule.decay_rate", c.decay_rate, Range{});
  visit("schedule.use_staircase_decay", c.use_staircase_decay, Range{});
  visit("schedule.boundaries", c.boundaries, Range{});
  visit("schedule.decay_rates", c.decay_rates, Range{});
  visit("schedule.steps_per_epoch", c.steps_per_epoch, Range{});
}

template <class Visit>
void visit_run(TrainConfig& c, Visit& visit) {
  visit("stop.max_steps", c.stop.max_steps, at_least(0));
  visit("stop.max_epochs", c.stop.max_epochs, at_least(0));
  visit("stop.max_minutes", c.stop.max_minutes, at_least(0));
  visit("stop.patience", c.stop.patience, at_least(0));
  visit.choice("stop.metric", c.stop.metric, Choices{"nll", "bleu", "chrf"});
  visit("validation.every_steps", c.validation.every_steps, at_least(0));
  visit("validation.every_minutes", c.validation.every_minutes, at_least(0));
  visit("validation.beam", c.validation.beam, Range{.low = 1, .high = 100});
  visit("validation.alpha", c.validation.alpha, Range{.low = 0, .high = 10});
  visit("validation.max_sentences", c.validation.max_sentences, at_least(0));
  visit("validation.samples", c.validation.samples, at_least(0));
  visit("validation.train_sample", c.validation.train_sample, at_least(0));
  visit("validation.decode", c.validation.decode, Range{});
  visit("checkpoint.every_steps", c.checkpoint.every_steps, at_least(0));
  visit("checkpoint.every_minutes", c.checkpoint.every_minutes, at_least(0));
  visit("checkpoint.keep_last", c.checkpoint.keep_last, at_least(1));
  visit("checkpoint.keep_best", c.checkpoint.keep_best, at_least(0));
  visit("log.every_steps", c.log.every_steps, at_least(1));
  visit("log.probe_seconds", c.log.probe_seconds, at_least(0));
  visit("nonfinite.max_skips", c.nonfinite.max_skips, at_least(1));
  visit("nonfinite.lr_factor", c.nonfinite.lr_factor, Range{.low = 0, .high = 1, .above = true});
  visit("nonfinite.max_rollbacks", c.nonfinite.max_rollbacks, at_least(0));
}

template <class Visit>
void visit_config(TrainConfig& c, Visit& visit) {
  visit("data", c.data, Range{});
  visit("run", c.run, Range{});
  visit("init", c.init, Range{});
  visit("seed", c.seed, Range{});
  visit("device", c.device, Range{});
  visit("threads", c.threads, Range{.low = 0, .high = 1024});
  visit.choice("precision", c.precision, Choices{"auto", "f32", "bf16"});
  visit("algorithms", c.algorithms, Range{});
  visit("label_smoothing", c.label_smoothing, kShare);
  visit_model(c.model, visit);
  visit("batch.tokens", c.batch.tokens, at_least(1));
  visit("batch.sentences", c.batch.sentences, at_least(0));
  visit.number_or("batch.micro_batch", c.micro_batch, "fit");
  visit.choice("optimizer.name", c.optimizer.name, Choices{"adam", "adamw"});
  visit("optimizer.beta1", c.optimizer.adam.beta1, kShare);
  visit("optimizer.beta2", c.optimizer.adam.beta2, kShare);
  visit("optimizer.epsilon", c.optimizer.adam.epsilon, Range{.low = 0, .above = true});
  visit("optimizer.weight_decay", c.optimizer.adam.weight_decay, at_least(0));
  visit("optimizer.max_gradient_norm", c.optimizer.max_gradient_norm, at_least(0));
  visit("optimizer.ema_decay", c.optimizer.ema_decay, kShare);
  visit_schedule(c.schedule, visit);
  visit_run(c, visit);
  visit.choice("dist.wire", c.dist.wire, Choices{"auto", "f64", "f32", "bf16"});
  visit("dist.shard_optimizer", c.dist.shard_optimizer, Range{});
  visit("dist.bucket_mb", c.dist.bucket_mb, Range{.low = 0, .high = 1024, .above = true});
  visit.choice("dist.engine", c.dist.engine, Choices{"auto", "nccl", "gloo"});
  visit("dist.hierarchical", c.dist.hierarchical, Range{});
  visit("dist.share_device", c.dist.share_device, Range{});
}

}  // namespace tandem
