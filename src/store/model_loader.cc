#include "store/model_loader.h"

#include "store/stored_config.h"

namespace tandem::store {

namespace {

// The model that the checkpoint's config describes, checked against its tokenizers before anything is allocated.
model::ModelConfig model_config(const Checkpoint& checkpoint, const std::filesystem::path& directory,
                                int64_t source_size, int64_t target_size) {
  const model::ModelConfig config = read_model_config(checkpoint.config_toml, (directory / "config.toml").string());
  require(config.source_vocabulary == source_size && config.target_vocabulary == target_size,
          "{}: the config has vocabularies of {} and {} pieces but the tokenizers have {} and {}", directory.string(),
          config.source_vocabulary, config.target_vocabulary, source_size, target_size);
  return config;
}

std::optional<text::Subwords> target_subwords(const Checkpoint& checkpoint, const std::filesystem::path& directory) {
  if (checkpoint.target_tokenizer.empty()) {
    return std::nullopt;
  }
  return text::Subwords::from_bytes(checkpoint.target_tokenizer, directory.string() + ", target tokenizer");
}

}  // namespace

InferenceModel::InferenceModel(backend::Backend& backend, const std::filesystem::path& path, DType compute,
                               bool use_average)
    : directory_(resolve_model(path)),
      checkpoint_(load_checkpoint(directory_)),
      source_(text::Subwords::from_bytes(checkpoint_.source_tokenizer, directory_.string() + ", source tokenizer")),
      target_(target_subwords(checkpoint_, directory_)),
      model_(backend, model_config(checkpoint_, directory_, source_.size(), (target_ ? *target_ : source_).size())) {
  const ParameterLayout& layout = model_.parameters();
  std::vector<float> host(static_cast<size_t>(layout.flat_size()));
  const View flat = host_view(host.data(), 1, layout.flat_size());
  if (use_average) {
    load_inference_weights(directory_, layout, flat);
  } else {
    load_tensors(directory_, layout, {.weights = flat, .slots = {}, .ema = {}});
  }
  masters_ = backend.allocate(host.size() * sizeof(float));
  const View masters = masters_.view(DType::f32, 1, layout.flat_size());
  backend.upload(masters, host.data());
  if (compute != DType::f32) {
    compute_ = backend.allocate(host.size() * size_of(compute));
    backend.copy(compute_.view(compute, 1, layout.flat_size()), masters);
  }
}

nn::Weights InferenceModel::weights() const {
  const int64_t size = model_.parameters().flat_size();
  const View masters = masters_.view(DType::f32, 1, size);
  return {masters, compute_.data() == nullptr ? masters : compute_.view(DType::bf16, 1, size)};
}

}  // namespace tandem::store
