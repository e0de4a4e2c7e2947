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

// What early stopping and the best checkpoint go by.
enum class Metric : uint8_t { nll, bleu, chrf };
constexpr const char* kMetricNames[] = {"nll", "bleu", "chrf"};
constexpr const char* name_of(Metric metric) { return kMetricNames[static_cast<size_t>(metric)]; }
constexpr bool higher_is_better(Metric metric) { return metric != Metric::nll; }

// state.json: all that resume needs besides the tensors.
struct CheckpointState {
  int64_t step = 0;            // optimizer steps done, skipped ones counted: the number of the next step
  int64_t updates = 0;         // Adam's step count: skipped steps are not counted
  data::Cursor cursor;         // where the next step begins
  double epochs_done = 0;      // with its fraction
  double elapsed_seconds = 0;  // of training, over all starts
  int64_t pairs = 0;           // seen so far
  int64_t source_tokens = 0;   //
  int64_t target_tokens = 0;   //
  uint64_t seed = 0;
  std::string data_fingerprint;
  data::MicroBatchCapacity micro_batch;  // tokens that one had room for; 0: as many as it needed

  // Early stopping.
  int64_t validations = 0;
  int64_t bad_validations = 0;            // in a row without a better metric
  std::optional<double> best_score;       // of the config's metric so far
  int64_t best_step = 0;                  //
  std::map<std::string, double> metrics;  // of the last validation: "nll", "bleu", "chrf", ...
  int64_t metrics_step = -1;              // the step that validation belongs to; -1 = none yet

  // Non-finite steps.
  int64_t skipped = 0;  // in all
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
  bool flat = true;  // [1, layout.flat_size()]: a tensor NAME.PARAMETER for each parameter; else the tensor NAME
};

// Host f32; weights and ema [1, layout.flat_size()]. An empty view: not saved, not loaded.
struct CheckpointTensors {
  View weights;                   // fp32 masters
  std::vector<SlotTensor> slots;  // the optimizer's
  View ema;                       // moving average of the weights
};

struct Checkpoint {
  CheckpointState state;
  std::string config_toml;       // to_toml() of the effective config, vocabularies filled in
  std::string source_tokenizer;  // SentencePiece model bytes
  std::string target_tokenizer;  // empty with a joint vocabulary
};

// Writes the checkpoint of state.step and points `latest` at it; returns its directory. An existing checkpoint of the
// same step is replaced. Fails with one sentence (on a full disk it names needed and
// free bytes); then the former checkpoints and both links are as they were.
std::filesystem::path save_checkpoint(const std::filesystem::path& run, const Checkpoint& checkpoint,
                                      const ParameterLayout& layout, const CheckpointTensors& tensors);

// Writes a directory with what translating needs; it must not exist yet. For `tandem average`.
void save_model(const std::filesystem::path& directory, const Checkpoint& checkpoint, const ParameterLayout& layout,
                const View& weights);

// Makes <run>/<name> a relative symbolic link to a directory below the run, in one step.
void set_link(const std::filesystem::path& run, const std::string& name, const std::filesystem::path& directory);

// What a link of the run points at; empty when there is no such link or nothing behind it.
std::filesystem::path link_target(const std::filesystem::path& run, const char* name);

// Points `best` at a checkpoint of the run.
void set_best(const std::filesystem::path& run, const std::filesystem::path& checkpoint);

// Deletes all but the newest checkpoints and the best ones by `metric` among those that were validated at their own
// step. What `latest` and `best` point at always stays.
struct KeptCheckpoints {
  int64_t newest = 1;
  int64_t best = 0;
};
void remove_old_checkpoints(const std::filesystem::path& run, const KeptCheckpoints& keep, Metric metric);

// Removes what a killed process left half-written or half-deleted.
void remove_stale_checkpoints(const std::filesystem::path& run);

// All complete-looking checkpoint directories of a run, oldest first. Not verified.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& run);

// The best by `metric`, best first, of those that were validated at their own step; at most `count`. Not verified.
std::vector<std::filesystem::path> list_best_checkpoints(const std::filesystem::path& run, int64_t count,
                                                         Metric metric);

// The newest checkpoint that passes verification: `latest`, or, when that is damaged, the newest undamaged one with a
// warning that names the damage. Nothing when the run has none at all; fails when all are damaged.
std::optional<std::filesystem::path> find_latest(const std::filesystem::path& run);

// Where the weights to translate with are: PATH is a run directory (its best checkpoint, else its latest), a checkpoint
// or a directory made by `tandem average`. Fails with one sentence when it is none of these.
std::filesystem::path resolve_model(const std::filesystem::path& path);

// Checks every file of a checkpoint or model directory against the manifest; fails naming the first damaged file.
void verify_checkpoint(const std::filesystem::path& directory);

// State, config and tokenizers; for a model directory the state is that of its newest part.
Checkpoint load_checkpoint(const std::filesystem::path& directory, bool verify = true);

// Fills the given (non-empty) buffers by name. Fails when a tensor is missing, unexpected or of another shape. `ema` is
// left out when the checkpoint has none: then false comes back.
bool load_tensors(const std::filesystem::path& directory, const ParameterLayout& layout,
                  const CheckpointTensors& tensors);

// The weights to translate with: the moving average where there is one, else the weights.
void load_inference_weights(const std::filesystem::path& directory, const ParameterLayout& layout, const View& weights);

}  // namespace tandem::store
