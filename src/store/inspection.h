// The content of a run, checkpoint, model or prepared directory, for `tandem inspect`.
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
  std::string holds;                // description of the content; empty if the file cannot be read
  std::vector<TensorInfo> tensors;  // if it is a safetensors file
};

// The content of a directory with a manifest.
struct Inspected {
  std::filesystem::path path;
  std::string kind;
  std::vector<InspectedFile> files;
  uint64_t bytes = 0;                       // all files and the manifest
  uint64_t inference_bytes = 0;             // bytes that translating reads; 0 for prepared data
  int64_t parameters = 0;                   // the model's
  std::optional<CheckpointState> state;     // if it is a checkpoint or model
  std::optional<model::ModelConfig> model;  // likewise
  std::vector<std::string> damage;          // one line each
};

// Fails only if there is no readable manifest; other faults are listed as damage. Without `verify`, sizes and checksums
// are not checked.
Inspected inspect_directory(const std::filesystem::path& path, bool verify);

// Layers, width, heads, feed-forward, vocabularies in one line.
std::string describe(const model::ModelConfig& model);

}  // namespace tandem::store
