// A trained model, loaded to translate with.
#pragma once

#include <filesystem>
#include <optional>

#include "model/transformer.h"
#include "store/checkpoint.h"
#include "text/subwords.h"

namespace tandem::store {

// What a stored run says its model is: the [model] table of config.toml, as training wrote it. `toml` is the text of a
// checkpoint's or model's config.toml. Keys that an older version did not write keep their defaults; a key or a value
// that is not known fails with an error that names it and the file `name`.
model::ModelConfig read_model_config(const std::string& toml, const std::string& name);

class InferenceModel {
 public:
  // `path`: a run directory, a checkpoint or an averaged model. With `use_average` the moving average of the weights
  // where there is one. Every file is checked; fails with one sentence that names what is wrong. The backend must
  // outlive the model.
  InferenceModel(backend::Backend& backend, const std::filesystem::path& path, DType compute, bool use_average = true);

  model::Transformer& model() { return model_; }
  nn::Weights weights() const;
  const text::Subwords& subwords(Side side) const { return side == Side::source || !target_ ? source_ : *target_; }
  const std::filesystem::path& directory() const { return directory_; }  // where the weights lie
  int64_t step() const { return checkpoint_.state.step; }

 private:
  std::filesystem::path directory_;
  Checkpoint checkpoint_;
  text::Subwords source_;
  std::optional<text::Subwords> target_;  // with separate vocabularies
  model::Transformer model_;
  Buffer masters_, compute_;  // compute_ only where its type is not f32
};

}  // namespace tandem::store
