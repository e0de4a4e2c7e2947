// A trained model, loaded for translating.
#pragma once

#include <filesystem>
#include <optional>

#include "model/transformer.h"
#include "store/checkpoint.h"
#include "text/subwords.h"

namespace tandem::store {

// The model of a stored run, from the [model] table that training wrote; `toml` is the text of a checkpoint's or
// model's config.toml. Keys that an older version did not write keep their defaults; an unknown key or value fails with
// an error that names it and the file `name`.
model::ModelConfig read_model_config(const std::string& toml, const std::string& name);

class InferenceModel {
 public:
  // `path`: a run directory, a checkpoint or an averaged model. If `use_average`, uses the moving average of the
  // weights if there is one. Every file is checked, and the error names what is wrong. The backend must outlive the
  // model.
  InferenceModel(backend::Backend& backend, const std::filesystem::path& path, DType compute, bool use_average = true);

  model::Transformer& model() { return model_; }
  nn::Weights weights() const;
  const text::Subwords& subwords(Side side) const { return side == Side::source || !target_ ? source_ : *target_; }
  const std::filesystem::path& directory() const { return directory_; }  // directory of the weights
  int64_t step() const { return checkpoint_.state.step; }

 private:
  std::filesystem::path directory_;
  Checkpoint checkpoint_;
  text::Subwords source_;
  std::optional<text::Subwords> target_;  // if vocabularies are separate
  model::Transformer model_;
  Buffer masters_, compute_;  // compute_ is used only if its type is not f32
};

}  // namespace tandem::store
