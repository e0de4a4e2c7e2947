// Checkpoints: complete or absent (docs/formats.md, "Checkpoint").
//
// A checkpoint is a directory <run>/checkpoints/step-00001200 with weights and optimizer state as safetensors, the rest
// of the state as JSON, config and tokenizer, and a manifest with every file's size and checksum. It is written aside,
// fsynced and renamed; then the symbolic links <run>/latest and <run>/best are replaced by a rename. A kill or a full
// disk at any moment leaves the previous checkpoint and both links as they were.
//
// Only the holder of the run directory's lock may write; reading needs no lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/batcher.h"
#include "tensor/parameters.h"
#include "tensor/view.h"

namespace tandem::store {

// The metric that decides about early stopping and the best checkpoint.
enum class Metric : uint8_t { nll, bleu, chrf };
constexpr const char* kMetricNames[] = {"nll", "bleu", "chrf"};
constexpr const char* name_of(Metric metric) { return kMetricNames[static_cast<size_t>(metric)]; }
constexpr bool higher_is_better(Metric metric) { return metric != Metric::nll; }

// state.json: the state that resuming needs besides the tensors.
struct CheckpointState {
  int64_t step = 0;            // optimizer steps done, skipped ones included: the number of the next step
  int64_t updates = 0;         // steps that changed the weights; skipped ones are not counted
  data::Cursor cursor;         // position at which the next step begins
  double epochs_done = 0;      // with fraction
  double elapsed_seconds = 0;  // training time, summed over all starts
  int64_t pairs = 0;           // seen so far
  int64_t source_tokens = 0;   // likewise
  int64_t target_tokens = 0;   // likewise
  uint64_t seed = 0;
  std::string data_fingerprint;
  data::MicroBatchCapacity micro_batch;  // capacity of a micro-batch; 0: micro-batches had their true size

  // Early stopping.
  int64_t validations = 0;
  int64_t bad_validations = 0;            // validations in a row without a better metric
  std::optional<double> best_score;       // best value of the config's metric so far
  int64_t best_step = 0;                  // step of best_score
  std::map<std::string, double> metrics;  // the last validation's: "nll", "bleu", "chrf", ...
  int64_t metrics_step = -1;              // step of that validation; -1 = none yet

  // Non-finite steps.
  int64_t skipped = 0;  // total number
  int64_t skipped_in_a_row = 0;
  int64_t rollbacks = 0;
  double learning_rate_factor = 1;
};

std::string to_json(const CheckpointState& state);
// `name` stands for the file in the error message.
CheckpointState parse_state(const std::string& text, const std::string& name);

// One buffer of the optimizer's state (optim/optimizer.h), host f32.
struct SlotTensor {
  std::string name;
  View view;
  bool flat = true;  // true: [1, layout.flat_size()], one tensor NAME.PARAMETER per parameter; false: one tensor NAME
};

// Host f32; weights and ema are [1, layout.flat_size()]. An empty view is neither saved nor loaded.
struct CheckpointTensors {
  View weights;                   // fp32 masters
  std::vector<SlotTensor> slots;  // the optimizer's state
  View ema;                       // moving average of the weights
};

struct Checkpoint {
  CheckpointState state;
  std::string config_toml;       // to_toml() of the effective config, vocabularies filled in
  std::string source_tokenizer;  // SentencePiece model bytes
  std::string target_tokenizer;  // empty if the vocabulary is joint
};

// Writes the checkpoint of state.step and points `latest` at it; returns its directory. An existing checkpoint of the
// same step is replaced. If it fails (on a full disk, the error gives the needed and the free bytes), the former
// checkpoints and both links stay as they were.
std::filesystem::path save_checkpoint(const std::filesystem::path& run, const Checkpoint& checkpoint,
                                      const ParameterLayout& layout, const CheckpointTensors& tensors);

// Writes a directory with the files that translating needs; it must not exist yet. For `tandem average`.
void save_model(const std::filesystem::path& directory, const Checkpoint& checkpoint, const ParameterLayout& layout,
                const View& weights);

// Makes <run>/<name> a relative symbolic link to a directory below the run, atomically.
void set_link(const std::filesystem::path& run, const std::string& name, const std::filesystem::path& directory);

// The target of a link in the run; empty if there is no such link or its target is missing.
std::filesystem::path link_target(const std::filesystem::path& run, const char* name);

// Points `best` at a checkpoint of the run.
void set_best(const std::filesystem::path& run, const std::filesystem::path& checkpoint);

// Deletes all checkpoints but the newest ones and the best ones by `metric` among those that were validated at their
// own step. The targets of `latest` and `best` always stay.
struct KeptCheckpoints {
  int64_t newest = 1;
  int64_t best = 0;
};
void remove_old_checkpoints(const std::filesystem::path& run, const KeptCheckpoints& keep, Metric metric);

// Removes checkpoints that a killed process has written or deleted only in part.
void remove_stale_checkpoints(const std::filesystem::path& run);

// All checkpoint directories of a run with a manifest, oldest first. Not verified.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& run);

// The best checkpoints by `metric`, best first, of those validated at their own step; at most `count`. Not verified.
std::vector<std::filesystem::path> list_best_checkpoints(const std::filesystem::path& run, int64_t count,
                                                         Metric metric);

// The newest checkpoint that passes verification: `latest` or, if that is damaged, the newest sound one, with a warning
// that names the damage. Nothing if the run has no checkpoint; fails if all are damaged.
std::optional<std::filesystem::path> find_latest(const std::filesystem::path& run);

// The directory of the weights for translating. PATH is a run directory (its best checkpoint, else its latest), a
// checkpoint or a directory made by `tandem average`; fails if it is none of these.
std::filesystem::path resolve_model(const std::filesystem::path& path);

// Checks every file of a checkpoint or model directory against the manifest; the error names the damaged files.
void verify_checkpoint(const std::filesystem::path& directory);

// Reads state, config and tokenizers; a model directory has the state of its newest part.
Checkpoint load_checkpoint(const std::filesystem::path& directory, bool verify = true);

// Fills the given (non-empty) buffers by name. Fails if a tensor is missing, unexpected or of another shape. Returns
// false if the checkpoint has no `ema`, which is then not filled.
bool load_tensors(const std::filesystem::path& directory, const ParameterLayout& layout,
                  const CheckpointTensors& tensors);

// Reads the weights for translating: the moving average if there is one, else the weights.
void load_inference_weights(const std::filesystem::path& directory, const ParameterLayout& layout, const View& weights);

}  // namespace tandem::store
