// The one list of a training config's keys; reading, writing and comparing all walk it.
#pragma once

#include <map>

#include "model/config_fields.h"
#include "train/config.h"

namespace tandem::train {

// Visits as visit_model() does. A number for which a word stands for 0 is visited by visit.number_or(key, member,
// word). Ranges of the schedule are checked by its own problems().
template <class Visit>
void visit_config(TrainConfig& c, Visit& visit) {
  visit("data", c.data, model::Range{});
  visit("run", c.run, model::Range{});
  visit("init", c.init, model::Range{});
  visit("seed", c.seed, model::Range{});
  visit("device", c.device, model::Range{});
  visit("threads", c.threads, model::Range{.low = 0, .high = 1024});
  visit.choice("precision", c.precision, model::Choices{"auto", "f32", "bf16"});
  visit("algorithms", c.algorithms, model::Range{});
  visit("label_smoothing", c.label_smoothing, model::kShare);
  model::visit_model(c.model, visit);
  visit("batch.tokens", c.batch.tokens, model::at_least(1));
  visit("batch.sentences", c.batch.sentences, model::at_least(0));
  visit.number_or("batch.micro_batch", c.micro_batch, "fit");
  visit.choice("optimizer.name", c.optimizer.name, model::Choices{"adam", "adamw"});
  visit("optimizer.beta1", c.optimizer.adam.beta1, model::kShare);
  visit("optimizer.beta2", c.optimizer.adam.beta2, model::kShare);
  visit("optimizer.epsilon", c.optimizer.adam.epsilon, model::Range{.low = 0, .above = true});
  visit("optimizer.weight_decay", c.optimizer.adam.weight_decay, model::at_least(0));
  visit("optimizer.max_gradient_norm", c.optimizer.max_gradient_norm, model::at_least(0));
  visit("optimizer.ema_decay", c.optimizer.ema_decay, model::kShare);
  visit.choice("schedule.policy", c.schedule.policy,
               model::Choices{"fixed_lr", "piecewise_constant", "exp_decay", "poly_decay", "cosine_decay",
                              "transformer_policy", "inv_poly_decay"});
  visit("schedule.learning_rate", c.schedule.learning_rate, model::Range{});
  visit("schedule.warmup_steps", c.schedule.warmup_steps, model::Range{});
  visit("schedule.d_model", c.schedule.d_model, model::at_least(0));
  visit("schedule.coefficient", c.schedule.coefficient, model::Range{});
  visit("schedule.max_lr", c.schedule.max_lr, model::Range{});
  visit("schedule.decay_steps", c.schedule.decay_steps, model::at_least(0));
  visit("schedule.begin_decay_at", c.schedule.begin_decay_at, model::Range{});
  visit("schedule.min_lr", c.schedule.min_lr, model::Range{});
  visit("schedule.power", c.schedule.power, model::Range{});
  visit("schedule.decay_rate", c.schedule.decay_rate, model::Range{});
  visit("schedule.use_staircase_decay", c.schedule.use_staircase_decay, model::Range{});
  visit("schedule.boundaries", c.schedule.boundaries, model::Range{});
  visit("schedule.decay_rates", c.schedule.decay_rates, model::Range{});
  visit("schedule.steps_per_epoch", c.schedule.steps_per_epoch, model::Range{});
  visit("stop.max_steps", c.stop.max_steps, model::at_least(0));
  visit("stop.max_epochs", c.stop.max_epochs, model::at_least(0));
  visit("stop.max_minutes", c.stop.max_minutes, model::at_least(0));
  visit("stop.patience", c.stop.patience, model::at_least(0));
  visit.choice("stop.metric", c.stop.metric, model::Choices{"nll", "bleu", "chrf"});
  visit("stop.grace_seconds", c.stop.grace_seconds, model::Range{.low = 1, .high = 86400});
  visit("validation.every_steps", c.validation.every_steps, model::at_least(0));
  visit("validation.every_minutes", c.validation.every_minutes, model::at_least(0));
  visit("validation.beam", c.validation.beam, model::Range{.low = 1, .high = 100});
  visit("validation.alpha", c.validation.alpha, model::Range{.low = 0, .high = 10});
  visit("validation.max_sentences", c.validation.max_sentences, model::at_least(0));
  visit("validation.samples", c.validation.samples, model::at_least(0));
  visit("validation.train_sample", c.validation.train_sample, model::at_least(0));
  visit("validation.decode", c.validation.decode, model::Range{});
  visit("checkpoint.every_steps", c.checkpoint.every_steps, model::at_least(0));
  visit("checkpoint.every_minutes", c.checkpoint.every_minutes, model::at_least(0));
  visit("checkpoint.keep_last", c.checkpoint.keep_last, model::at_least(1));
  visit("checkpoint.keep_best", c.checkpoint.keep_best, model::at_least(0));
  visit("log.every_steps", c.log.every_steps, model::at_least(1));
  visit("log.probe_seconds", c.log.probe_seconds, model::at_least(0));
  visit("nonfinite.max_skips", c.nonfinite.max_skips, model::at_least(1));
  visit("nonfinite.lr_factor", c.nonfinite.lr_factor, model::Range{.low = 0, .high = 1, .above = true});
  visit("nonfinite.max_rollbacks", c.nonfinite.max_rollbacks, model::at_least(0));
  visit.choice("dist.wire", c.dist.wire, model::Choices{"auto", "f64", "f32", "bf16"});
  visit("dist.shard_optimizer", c.dist.shard_optimizer, model::Range{});
  visit("dist.bucket_mb", c.dist.bucket_mb, model::Range{.low = 0, .high = 1024, .above = true});
  visit.choice("dist.engine", c.dist.engine, model::Choices{"auto", "nccl", "gloo"});
  visit("dist.hierarchical", c.dist.hierarchical, model::Range{});
  visit("dist.share_device", c.dist.share_device, model::Range{});
  visit("dist.heartbeat_seconds", c.dist.heartbeat_seconds, model::Range{.low = 0.1, .high = 60});
  visit("dist.silence_seconds", c.dist.silence_seconds, model::Range{.low = 0.2, .high = 3600});
  visit("dist.collective_minutes", c.dist.collective_minutes, model::Range{.low = 0.1, .high = 1440});
}

// Where each key was set ("base.toml:12"), and every error so far, in order.
struct ConfigReport {
  std::string file;
  std::map<std::string, std::string> places;
  std::vector<std::string> errors;

  std::string place_of(const std::string& key) const {
    const auto found = places.find(key);
    return found == places.end() ? file : found->second;
  }
};

// Each function overrides the config with one layer: a file, or the overrides of a command line.
void read_toml(const std::string& toml, TrainConfig& config, ConfigReport& report);
void read_overrides(const std::vector<std::string>& overrides, TrainConfig& config, ConfigReport& report);

}  // namespace tandem::train
