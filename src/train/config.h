// The settings of a training run: plain structs, read from TOML and key=value overrides and checked once at start.
//
// Every member is a TOML key of the same name (docs/config.md). `model.preset` sets all of the model's numbers; single
// keys then override them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "backend/precision.h"
#include "core/signals.h"
#include "data/prepared.h"
#include "model/config.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "store/checkpoint.h"

namespace tandem::train {

struct OptimizerConfig {
  optim::OptimizerName name = optim::OptimizerName::adam;
  backend::AdamSettings adam{.beta1 = 0.9F, .beta2 = 0.997F, .epsilon = 1e-9F};
  float max_gradient_norm = 0;  // 0 = no clipping
  float ema_decay = 0;          // exponential moving average of the weights; 0 = off
};

// The run ends at the first limit that is reached; 0 = no limit. At least one of the first three must be set.
struct StopConfig {
  int64_t max_steps = 100000;
  double max_epochs = 0;
  double max_minutes = 0;
  int64_t patience = 0;  // validations without a better `metric` before the run ends; 0 = never
  store::Metric metric = store::Metric::nll;
  int grace_seconds = kUsualGrace;  // after a signal to stop: time to save and end
};

struct ValidationConfig {
  int64_t every_steps = 2000;  // 0 = only at the end
  double every_minutes = 0;    // 0 = off
  int beam = 4;
  double alpha = 0.6;          // length penalty
  int64_t max_sentences = 0;   // sentences to validate on; 0 = all
  int64_t samples = 5;         // translations shown
  int64_t train_sample = 500;  // training pairs whose loss is measured without dropout
  bool decode = true;          // false: no BLEU, chrF or samples
};

struct CheckpointConfig {
  int64_t every_steps = 2000;  // 0 = only at validations and the end
  double every_minutes = 15;   // 0 = off
  int64_t keep_last = 5;       // at least 1
  int64_t keep_best = 1;       // 0 = none; only validated checkpoints count
};

struct LogConfig {
  int64_t every_steps = 100;
  double probe_seconds = 5;  // between two samples of GPU, network, CPU, memory and disk; 0 = none
};

// A step whose loss or gradient is not finite is skipped. After `max_skips` in a row the run goes back to the last good
// checkpoint, with the learning rate times `lr_factor`; after `max_rollbacks` it stops.
struct NonfiniteConfig {
  int64_t max_skips = 10;
  double lr_factor = 0.5;
  int64_t max_rollbacks = 3;
};

// How ranks work together.
struct DistConfig {
  // Type in which gradients are sent. bf16 halves the bytes; with f64 (CPUs only) sums do not depend on the ranks.
  enum class Wire : uint8_t { automatic, f64, f32, bf16 };
  Wire wire = Wire::automatic;   // f64 for f32 on CPUs, else f32
  bool shard_optimizer = false;  // each rank keeps and updates a part of the optimizer's state
  double bucket_mb = 4;          // size of the pieces in which gradients are sent during the backward pass
  enum class Engine : uint8_t { automatic, nccl, gloo };
  Engine engine = Engine::automatic;  // between GPUs
  bool hierarchical = true;           // if hosts have several ranks: add up inside each host, then between hosts
  bool share_device = false;          // ranks of one host may share a GPU
  double heartbeat_seconds = 1;       // between two heartbeats of a rank
  double silence_seconds = 3;         // a rank silent for so long is dead
  double collective_minutes = 30;     // longest wait for a rank that lives but sends nothing of a sum
};

struct TrainConfig {
  std::string data;  // a directory made by `tandem prepare`
  std::string run;   // the run directory
  std::string init;  // a run, checkpoint or model whose weights to start from; empty = fresh weights
  uint64_t seed = 1;
  std::string device = "auto";  // auto, cpu, cuda or cuda:N
  int threads = 0;              // 0 = all cores that this process may use
  Precision precision = Precision::automatic;
  std::string algorithms;  // table made by `tandem tune`; empty = the libraries' own choice
  float label_smoothing = 0.1F;
  int64_t micro_batch = 0;  // batch.micro_batch: tokens of each side in a micro-batch; 0 = "fit": as many as fit

  model::ModelConfig model;  // vocabularies: 0 = the prepared data's
  data::BatchConfig batch;   // seed and max_length are copied from `seed` and `model.max_length`
  OptimizerConfig optimizer;
  optim::ScheduleConfig schedule;  // as written; with_defaults() fills in d_model and decay_steps
  StopConfig stop;
  ValidationConfig validation;
  CheckpointConfig checkpoint;
  LogConfig log;
  NonfiniteConfig nonfinite;
  DistConfig dist;
};

// Reads `path`, then the overrides ("batch.tokens=8000"; bare words are strings, so data=data/en-de needs no quotes).
// Fails with all errors at once, one a line, each with its file:line or override; for an unknown key it suggests the
// nearest known one. `data` must be set, but neither the data nor the run directory is read.
TrainConfig load_config(const std::filesystem::path& path, const std::vector<std::string>& overrides = {});

// The same from text, for checkpoints; `data` may be missing. `name` stands for the file in error messages.
TrainConfig parse_config(const std::string& toml, const std::string& name,
                         const std::vector<std::string>& overrides = {});

// Fills in what follows from the data (vocabularies) and from other settings (batch seed and length, schedule), then
// fails with a list of everything impossible.
void complete_config(TrainConfig& config, const data::Prepared& data);

// Every key with its effective value; parse_config() of it gives an equal config.
std::string to_toml(const TrainConfig& config);

// The settings that changed before a resume, as "key: old -> new". A `refused` change would make the saved state
// useless (model shape, vocabularies, seed); `allowed` ones take effect. Data is compared elsewhere, by fingerprint.
struct ConfigChanges {
  std::vector<std::string> refused;
  std::vector<std::string> allowed;
};
ConfigChanges compare_for_resume(const TrainConfig& saved, const TrainConfig& now);

}  // namespace tandem::train
