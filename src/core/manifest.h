// manifest.json: every file of a checkpoint, model or prepared directory with its role, size and checksum.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tandem::inline core {

// The purpose of a file.
namespace role {
constexpr const char* kWeights = "weights";
constexpr const char* kMovingAverage = "moving average of the weights";
constexpr const char* kOptimizer = "optimizer state";
constexpr const char* kState = "training state";
constexpr const char* kConfig = "config";
constexpr const char* kSourceTokenizer = "source tokenizer";
constexpr const char* kTargetTokenizer = "target tokenizer";
constexpr const char* kCorpus = "training corpus";
constexpr const char* kValidSource = "validation source text";
constexpr const char* kValidTarget = "validation target text";
constexpr const char* kTestSource = "test source text";
constexpr const char* kTestTarget = "test target text";
}  // namespace role

struct ManifestFile {
  std::string name;
  std::string role;
  uint64_t bytes = 0;
  std::string checksum;  // CRC-64/XZ, 16 hexadecimal digits
};

struct Manifest {
  std::string kind;  // "checkpoint", "model" or "prepared"
  std::vector<ManifestFile> files;

  const ManifestFile* find(const std::string& role) const;  // null if there is none
  uint64_t bytes() const;                                   // sum over all files
};

std::string to_json(const Manifest& manifest);

bool has_manifest(const std::filesystem::path& directory);

// Fails if the manifest is missing or is not byte for byte what to_json() wrote.
Manifest read_manifest(const std::filesystem::path& directory);

// The path of the file with this role. If there is none, the error ends with `advice`.
std::filesystem::path file_of(const std::filesystem::path& directory, const Manifest& manifest, const char* role,
                              const char* advice = "");

// One line for each file that is missing, or has another size or checksum; empty if all are sound.
std::vector<std::string> find_damage(const std::filesystem::path& directory, const Manifest& manifest);

}  // namespace tandem::inline core
