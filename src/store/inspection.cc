#include "store/inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/file.h"
#include "core/human.h"
#include "data/corpus.h"
#include "store/model_loader.h"

namespace tandem::store {

namespace fs = std::filesystem;

namespace {

std::string describe_tensors(const std::vector<TensorInfo>& tensors) {
  std::map<std::string, int64_t> numbers;  // by type
  for (const TensorInfo& tensor : tensors) {
    numbers[tensor.dtype] += tensor.elements();
  }
  std::string text = fmt::format("{} tensors", tensors.size());
  for (const auto& [dtype, count] : numbers) {
    text += fmt::format(", {} {} numbers", grouped(count), dtype);
  }
  return text;
}

bool is_text(const std::string& role) {
  return role == role::kValidSource || role == role::kValidTarget || role == role::kTestSource ||
         role == role::kTestTarget;
}

void look_into(const fs::path& path, InspectedFile& file, Inspected& result) {
  const std::string& role = file.file.role;
  if (path.extension() == ".safetensors") {
    file.tensors = SafetensorsReader(path).tensors();
    file.holds = describe_tensors(file.tensors);
  } else if (role == role::kSourceTokenizer || role == role::kTargetTokenizer) {
    file.holds = fmt::format("{} pieces", grouped(text::Subwords::load(path).size()));
  } else if (role == role::kConfig) {
    result.model = read_model_config(read_file(path), path.string());
    file.holds = "the effective config";
  } else if (role == role::kCorpus) {
    const data::Corpus corpus = data::Corpus::open(path, false);
    file.holds = fmt::format("{} pairs, {} source and {} target pieces", grouped(corpus.size()),
                             grouped(corpus.tokens(Side::source)), grouped(corpus.tokens(Side::target)));
  } else if (is_text(role)) {
    const std::string text = read_file(path);
    file.holds = fmt::format("{} lines", grouped(std::count(text.begin(), text.end(), '\n')));
  } else if (role == role::kState) {
    result.state = load_checkpoint(path.parent_path(), false).state;
    file.holds = fmt::format("step {}, cursor, early stopping, counters", grouped(result.state->step));
  }
}

bool needed_for_inference(const std::string& role, bool has_average) {
  return role == (has_average ? role::kMovingAverage : role::kWeights) || role == role::kConfig ||
         role == role::kState || role == role::kSourceTokenizer || role == role::kTargetTokenizer;
}

}  // namespace

Inspected inspect_directory(const fs::path& path, bool verify) {
  const Manifest manifest = read_manifest(path);
  Inspected result;
  result.path = path;
  result.kind = manifest.kind;
  const uint64_t manifest_bytes = to_json(manifest).size();
  const bool model = manifest.find(role::kWeights) != nullptr;
  const bool has_average = manifest.find(role::kMovingAverage) != nullptr;
  result.bytes = manifest.bytes() + manifest_bytes;
  result.inference_bytes = model ? manifest_bytes : 0;
  for (const ManifestFile& file : manifest.files) {
    result.files.push_back({file, "", {}});
    std::vector<std::string> damage;
    if (verify) {
      damage = find_damage(path, {manifest.kind, {file}});
    }
    if (damage.empty()) {
      try {
        look_into(path / file.name, result.files.back(), result);
      } catch (const std::exception& error) {
        damage.emplace_back(error.what());
      }
    }
    result.damage.insert(result.damage.end(), damage.begin(), damage.end());
    if (model && needed_for_inference(file.role, has_average)) {
      result.inference_bytes += file.bytes;
    }
    if (file.role == role::kWeights) {
      for (const TensorInfo& tensor : result.files.back().tensors) {
        result.parameters += tensor.elements();
      }
    }
  }
  return result;
}

std::string describe(const model::ModelConfig& m) {
  return fmt::format("{}+{} layers, width {}, {} heads, feed-forward {}, vocabulary {} / {}, at most {} tokens",
                     m.encoder_layers, m.decoder_layers, m.width, m.heads, m.feed_forward, grouped(m.source_vocabulary),
                     grouped(m.target_vocabulary), m.max_length);
}

}  // namespace tandem::store
