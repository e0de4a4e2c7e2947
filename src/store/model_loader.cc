#include "store/model_loader.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/parse.h"
#include "model/config_fields.h"

namespace tandem::store {

namespace {

using Values = std::map<std::string, std::string>;

// Maps "model.KEY" to the value's text. Training writes one `KEY = VALUE` a line below a line `[model]`.
Values model_table(const std::string& toml) {
  Values values;
  bool inside = false;
  for (const std::string& line : split(toml, '\n')) {
    if (line.starts_with('[')) {
      inside = line == "[model]";
    } else if (const size_t equals = line.find(" = "); inside && equals != std::string::npos) {
      values["model." + line.substr(0, equals)] = line.substr(equals + 3);
    }
  }
  return values;
}

// Sets each member to its value and removes it from the table.
class StoredReader {
 public:
  StoredReader(Values& values, const std::string& name) : values_(values), name_(name) {}

  template <class T>
  void operator()(const char* key, T& member, model::Range) {
    read(key, [&member](const std::string& text) {
      if constexpr (std::is_same_v<T, bool>) {
        member = text == "true";
        return member || text == "false";
      } else {
        const auto value = parse_number<T>(text);
        member = value.value_or(member);
        return value.has_value();
      }
    });
  }

  template <class T>
  void choice(const char* key, T& member, model::Choices names) {
    read(key, [&](const std::string& text) {
      const auto found =
          std::ranges::find_if(names, [&](const char* one) { return text == fmt::format("\"{}\"", one); });
      member = found == names.end() ? member : static_cast<T>(found - names.begin());
      return found != names.end();
    });
  }

 private:
  template <class Parse>
  void read(const char* key, const Parse& parse) {
    if (const auto value = values_.find(key); value != values_.end()) {
      require(parse(value->second), "{}: {} = {} is not a value that this version knows", name_, key, value->second);
      values_.erase(value);
    }
  }

  Values& values_;
  const std::string& name_;
};

// The model that the checkpoint's config describes, checked against its tokenizers before anything is allocated.
model::ModelConfig model_config(const Checkpoint& checkpoint, const std::filesystem::path& directory,
                                int64_t source_size, int64_t target_size) {
  const model::ModelConfig config = read_model_config(checkpoint.config_toml, (directory / "config.toml").string());
  require(config.source_vocabulary == source_size && config.target_vocabulary == target_size,
          "{}: the config has vocabularies of {} and {} pieces but the tokenizers have {} and {}", directory.string(),
          config.source_vocabulary, config.target_vocabulary, source_size, target_size);
  const std::string wrong = problems(config);
  require(wrong.empty(), "{}: {}", directory.string(), wrong);
  const auto needed = static_cast<uint64_t>(model::parameter_count(config)) * sizeof(float);
  const uint64_t there = std::filesystem::file_size(directory / "model.safetensors");
  require(there >= needed, "{}: a model of its config has {} bytes, but model.safetensors has {}", directory.string(),
          needed, there);
  return config;
}

std::optional<text::Subwords> target_subwords(const Checkpoint& checkpoint, const std::filesystem::path& directory) {
  if (checkpoint.target_tokenizer.empty()) {
    return std::nullopt;
  }
  return text::Subwords::from_bytes(checkpoint.target_tokenizer, directory.string() + ", target tokenizer");
}

}  // namespace

model::ModelConfig read_model_config(const std::string& toml, const std::string& name) {
  Values values = model_table(toml);
  require(!values.empty(), "{} has no [model] table", name);
  model::ModelConfig config;
  StoredReader reader(values, name);
  model::visit_model(config, reader);
  require(values.empty(), "{}: {} is not a setting that this version knows", name, values.begin()->first);
  return config;
}

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
