#include "store/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "core/manifest.h"
#include "store/safetensors.h"

namespace tandem::store {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kSmallFile = uint64_t{1} << 28;  // larger than any state, config or tokenizer

struct NewFile {
  std::string name, role;
  std::string text;                    // the content, unless it is tensors
  std::vector<TensorToWrite> tensors;  // the content, if it is tensors

  uint64_t bytes() const { return tensors.empty() ? text.size() : safetensors_size(tensors); }
};

std::vector<int64_t> shape_of(const Parameter& parameter) {
  return parameter.is_vector ? std::vector{parameter.cols} : std::vector{parameter.rows, parameter.cols};
}

void add_tensors(std::vector<TensorToWrite>& list, const ParameterLayout& layout, const View& flat,
                 const std::string& prefix) {
  require(flat.size() == layout.flat_size(), "a flat buffer of {} elements for a layout of {}", flat.size(),
          layout.flat_size());
  const float* data = flat.host<float>();
  for (const Parameter& parameter : layout.all()) {
    list.push_back({prefix + parameter.name, "F32", shape_of(parameter), data + parameter.offset});
  }
}

std::vector<NewFile> files_of(const Checkpoint& checkpoint, const ParameterLayout& layout,
                              const CheckpointTensors& tensors) {
  std::vector<NewFile> files;
  files.push_back({"model.safetensors", role::kWeights, "", {}});
  add_tensors(files.back().tensors, layout, tensors.weights, "");
  if (!tensors.ema.empty()) {
    files.push_back({"ema.safetensors", role::kMovingAverage, "", {}});
    add_tensors(files.back().tensors, layout, tensors.ema, "");
  }
  if (!tensors.slots.empty()) {
    files.push_back({"optimizer.safetensors", role::kOptimizer, "", {}});
  }
  for (const SlotTensor& slot : tensors.slots) {
    if (slot.flat) {
      add_tensors(files.back().tensors, layout, slot.view, slot.name + ".");
    } else {
      files.back().tensors.push_back({slot.name, "F32", {slot.view.rows, slot.view.cols}, slot.view.host<float>()});
    }
  }
  files.push_back({"state.json", role::kState, to_json(checkpoint.state), {}});
  files.push_back({"config.toml", role::kConfig, checkpoint.config_toml, {}});
  files.push_back({"source.model", role::kSourceTokenizer, checkpoint.source_tokenizer, {}});
  if (!checkpoint.target_tokenizer.empty()) {
    files.push_back({"target.model", role::kTargetTokenizer, checkpoint.target_tokenizer, {}});
  }
  return files;
}

// Writes the directory completely or not at all.
void write_directory(const fs::path& directory, bool replace, const char* kind, const std::vector<NewFile>& files) {
  NewDirectory result(directory, replace);
  Manifest manifest{kind, {}};
  for (const NewFile& file : files) {
    FileWriter writer(result.temporary() / file.name);
    if (file.tensors.empty()) {
      writer.write(file.text);
    } else {
      write_safetensors(writer, file.tensors);
    }
    writer.finish();
    manifest.files.push_back({file.name, file.role, writer.size(), writer.checksum()});
  }
  write_file(result.temporary() / "manifest.json", to_json(manifest));
  result.commit();
}

uint64_t free_bytes(fs::path directory) {
  std::error_code error;
  while (!fs::exists(directory, error) && directory.has_relative_path()) {
    directory = directory.parent_path();
  }
  const fs::space_info space = fs::space(directory.empty() ? "." : directory, error);
  return error ? UINT64_MAX : space.available;
}

void write_checked(const fs::path& directory, bool replace, const char* kind, const std::vector<NewFile>& files) {
  uint64_t needed = 0;
  for (const NewFile& file : files) {
    needed += file.bytes();
  }
  const fs::path parent = directory.parent_path();
  require(free_bytes(parent) >= needed, "cannot write {}: it needs {} bytes and {} are free; free some space",
          directory.string(), needed, free_bytes(parent));
  try {
    write_directory(directory, replace, kind, files);
  } catch (const std::exception& error) {
    fail("cannot write {} ({} bytes needed, {} free): {}", directory.string(), needed, free_bytes(parent),
         error.what());
  }
}

// Reads a flat buffer. Every parameter must be present with its shape, and nothing else may have the prefix.
void read_flat(const SafetensorsReader& reader, const fs::path& path, const ParameterLayout& layout,
               const std::string& prefix, const View& flat) {
  require(flat.size() == layout.flat_size(), "a flat buffer of {} elements for a layout of {}", flat.size(),
          layout.flat_size());
  std::vector<std::string> faults;
  std::set<std::string> wanted;
  for (const Parameter& parameter : layout.all()) {
    const std::string name = prefix + parameter.name;
    const TensorInfo* tensor = reader.find(name);
    wanted.insert(name);
    if (tensor == nullptr) {
      faults.push_back(fmt::format("'{}' is missing", name));
    } else if (tensor->dtype != "F32" || tensor->shape != shape_of(parameter)) {
      faults.push_back(fmt::format("'{}' is {} [{}] instead of F32 [{}]", name, tensor->dtype,
                                   fmt::join(tensor->shape, ", "), fmt::join(shape_of(parameter), ", ")));
    }
  }
  for (const TensorInfo& tensor : reader.tensors()) {
    if (tensor.name.starts_with(prefix) && !wanted.contains(tensor.name)) {
      faults.push_back(fmt::format("'{}' is not part of the model", tensor.name));
    }
  }
  const size_t shown = std::min<size_t>(faults.size(), 3);
  require(faults.empty(), "{} does not fit the model: {}{}", path.string(),
          fmt::join(faults.begin(), faults.begin() + static_cast<ptrdiff_t>(shown), "; "),
          faults.size() > shown ? fmt::format(" (and {} more)", faults.size() - shown) : "");
  auto* data = flat.host<float>();
  std::fill_n(data, flat.size(), 0.0F);  // the gaps between parameters
  for (const Parameter& parameter : layout.all()) {
    reader.read(*reader.find(prefix + parameter.name), data + parameter.offset);
  }
}

void read_slots(const fs::path& path, const ParameterLayout& layout, const std::vector<SlotTensor>& slots) {
  const SafetensorsReader reader(path);
  for (const SlotTensor& slot : slots) {
    if (slot.flat) {
      read_flat(reader, path, layout, slot.name + ".", slot.view);
      continue;
    }
    const TensorInfo* tensor = reader.find(slot.name);
    require(tensor != nullptr && tensor->dtype == "F32" && tensor->shape == std::vector{slot.view.rows, slot.view.cols},
            "{} has no F32 [{}, {}] '{}', which the optimizer needs", path.string(), slot.view.rows, slot.view.cols,
            slot.name);
    reader.read(*tensor, slot.view.host<float>());
  }
}

void read_role(const fs::path& directory, const Manifest& manifest, const char* wanted, const ParameterLayout& layout,
               const View& flat) {
  const fs::path path = file_of(directory, manifest, wanted);
  const SafetensorsReader reader(path);
  read_flat(reader, path, layout, "", flat);
}

}  // namespace

fs::path save_checkpoint(const fs::path& run, const Checkpoint& checkpoint, const ParameterLayout& layout,
                         const CheckpointTensors& tensors) {
  fs::path directory = run / "checkpoints" / fmt::format("step-{:08}", checkpoint.state.step);
  write_checked(directory, true, "checkpoint", files_of(checkpoint, layout, tensors));
  set_link(run, "latest", directory);
  return directory;
}

void save_model(const fs::path& directory, const Checkpoint& checkpoint, const ParameterLayout& layout,
                const View& weights) {
  write_checked(directory, false, "model", files_of(checkpoint, layout, {weights, {}, {}}));
}

void verify_checkpoint(const fs::path& directory) {
  const std::vector<std::string> damage = find_damage(directory, read_manifest(directory));
  require(damage.empty(), "{}", fmt::join(damage, "; "));
}

Checkpoint load_checkpoint(const fs::path& directory, bool verify) {
  if (verify) {
    verify_checkpoint(directory);
  }
  const Manifest manifest = read_manifest(directory);
  const fs::path state = file_of(directory, manifest, role::kState);
  Checkpoint checkpoint;
  checkpoint.state = parse_state(read_file(state, kSmallFile), state.string());
  checkpoint.config_toml = read_file(file_of(directory, manifest, role::kConfig), kSmallFile);
  checkpoint.source_tokenizer = read_file(file_of(directory, manifest, role::kSourceTokenizer), kSmallFile);
  if (const ManifestFile* target = manifest.find(role::kTargetTokenizer)) {
    checkpoint.target_tokenizer = read_file(directory / target->name, kSmallFile);
  }
  return checkpoint;
}

bool load_tensors(const fs::path& directory, const ParameterLayout& layout, const CheckpointTensors& tensors) {
  const Manifest manifest = read_manifest(directory);
  if (!tensors.weights.empty()) {
    read_role(directory, manifest, role::kWeights, layout, tensors.weights);
  }
  if (!tensors.slots.empty()) {
    read_slots(file_of(directory, manifest, role::kOptimizer), layout, tensors.slots);
  }
  if (tensors.ema.empty()) {
    return true;
  }
  if (manifest.find(role::kMovingAverage) == nullptr) {
    return false;
  }
  read_role(directory, manifest, role::kMovingAverage, layout, tensors.ema);
  return true;
}

void load_inference_weights(const fs::path& directory, const ParameterLayout& layout, const View& weights) {
  const Manifest manifest = read_manifest(directory);
  const bool averaged = manifest.find(role::kMovingAverage) != nullptr;
  read_role(directory, manifest, averaged ? role::kMovingAverage : role::kWeights, layout, weights);
}

}  // namespace tandem::store
