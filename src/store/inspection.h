// What a run, checkpoint, model or prepared directory holds, for `tandem inspect`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/manifest.h"
#include "model/config.h"
#include "store/checkpoint.h"
#include "store/safetensors.h"

namespace tandem::store {

struct InspectedFile {
  ManifestFile file;
  std::string holds;                // in words; empty where the file cannot be read
  std::vector<TensorInfo> tensors;  // of a safetensors file
};

// A directory with a manifest.
struct Inspected {
  std::filesystem::path path;
  std::string kind;
  std::vector<InspectedFile> files;
  uint64_t bytes = 0;                       // of all files and the manifest
  uint64_t inference_bytes = 0;             // of what translating reads; 0 for prepared data
  int64_t parameters = 0;                   // of the model
  std::optional<CheckpointState> state;     // of a checkpoint or model
  std::optional<model::ModelConfig> model;  //
  std::vector<std::string> damage;          // one sentence each
};

// Fails only when there is no readable manifest; other faults are listed as damage. Without `verify` sizes and
// checksums are not checked.
Inspected inspect_directory(const std::filesystem::path& path, bool verify);

// Layers, width, heads, feed-forward, vocabularies in one line.
std::string describe(const model::ModelConfig& model);

}  // namespace tandem::store
