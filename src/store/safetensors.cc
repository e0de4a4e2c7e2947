#include "store/safetensors.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/parse.h"

namespace tandem::store {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

using Json = nlohmann::json;

namespace {

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr uint64_t kPrefix = 8;

struct Type {
  const char* name;
  uint64_t bytes;
};

// In the reference writer's order of tensors.
constexpr std::array<Type, 15> kTypes = {{{"U64", 8},
                                          {"I64", 8},
                                          {"F64", 8},
                                          {"F32", 4},
                                          {"U32", 4},
                                          {"I32", 4},
                                          {"BF16", 2},
                                          {"F16", 2},
                                          {"U16", 2},
                                          {"I16", 2},
                                          {"F8_E4M3", 1},
                                          {"F8_E5M2", 1},
                                          {"I8", 1},
                                          {"U8", 1},
                                          {"BOOL", 1}}};

const Type* type_of(const std::string& dtype) {
  return std::find_if(kTypes.begin(), kTypes.end(), [&](const Type& type) { return dtype == type.name; });
}

// Parses JSON and refuses duplicate keys, which nlohmann-json would silently merge.
Json parse_unique(const std::string& text) {
  require(is_shallow_json(text), "its brackets are nested more than 32 deep");
  std::vector<std::set<std::string>> keys;
  return Json::parse(text, [&keys](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      require(keys.back().insert(key).second, "the key '{}' is there twice", key);
    }
    return true;
  });
}

uint64_t unsigned_of(const Json& value, const char* what) {
  require(value.is_number_unsigned(), "{} is a JSON {}, not a count", what, value.type_name());
  return value.get<uint64_t>();
}

// Product of the shape times the element size, at most `limit`.
uint64_t bytes_of(const std::vector<int64_t>& shape, uint64_t element, uint64_t limit) {
  uint64_t bytes = element;
  for (const int64_t extent : shape) {
    require(!__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes), "its shape overflows");
  }
  require(bytes <= limit, "its shape needs {} bytes but the file has {}", bytes, limit);
  return bytes;
}

TensorInfo tensor_of(const std::string& name, const Json& entry, uint64_t data_bytes) {
  require(entry.is_object() && entry.size() == 3 && entry.contains("dtype") && entry.contains("shape") &&
              entry.contains("data_offsets"),
          "it does not have exactly dtype, shape and data_offsets");
  const Json& offsets = entry["data_offsets"];
  require(entry["dtype"].is_string() && entry["shape"].is_array() && offsets.is_array() && offsets.size() == 2,
          "dtype, shape or data_offsets has the wrong type");
  TensorInfo tensor{name, entry["dtype"].get<std::string>(), {}, 0, 0};
  const uint64_t element = safetensors_dtype_size(tensor.dtype);
  require(element > 0, "its dtype '{}' is not known", tensor.dtype);
  for (const Json& extent : entry["shape"]) {
    const uint64_t value = unsigned_of(extent, "an extent of its shape");
    require(value <= INT64_MAX, "its shape overflows");
    tensor.shape.push_back(static_cast<int64_t>(value));
  }
  tensor.begin = unsigned_of(offsets[0], "its first data offset");
  tensor.end = unsigned_of(offsets[1], "its second data offset");
  require(tensor.begin <= tensor.end && tensor.end <= data_bytes, "its offsets {} to {} leave the data of {} bytes",
          tensor.begin, tensor.end, data_bytes);
  const uint64_t bytes = bytes_of(tensor.shape, element, data_bytes);
  require(bytes == tensor.end - tensor.begin, "its shape needs {} bytes but its offsets span {}", bytes,
          tensor.end - tensor.begin);
  return tensor;
}

std::string header_of(std::vector<TensorToWrite>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorToWrite& a, const TensorToWrite& b) {
    return std::make_tuple(type_of(a.dtype), a.name) < std::make_tuple(type_of(b.dtype), b.name);
  });
  nlohmann::ordered_json header;  // keeps the order of insertion
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t begin = 0;
  for (const TensorToWrite& tensor : tensors) {
    require(!header.contains(tensor.name), "two tensors are named '{}'", tensor.name);
    const uint64_t element = safetensors_dtype_size(tensor.dtype);
    require(element > 0, "tensor '{}' has the unknown dtype '{}'", tensor.name, tensor.dtype);
    const uint64_t end = begin + bytes_of(tensor.shape, element, UINT64_MAX - begin);
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.append((8 - (kPrefix + text.size()) % 8) % 8, ' ');
  return text;
}

uint64_t data_size(const TensorToWrite& tensor) {
  return bytes_of(tensor.shape, safetensors_dtype_size(tensor.dtype), UINT64_MAX);
}

}  // namespace

uint64_t safetensors_dtype_size(const std::string& dtype) {
  const Type* type = type_of(dtype);
  return type == kTypes.end() ? 0 : type->bytes;
}

int64_t TensorInfo::elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    count *= extent;
  }
  return count;
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) : path_(path), file_(open_to_read(path)) {
  try {
    struct stat info {};
    require(::fstat(file_.get(), &info) == 0 && S_ISREG(info.st_mode), "it is not a regular file");
    const auto size = static_cast<uint64_t>(info.st_size);
    uint64_t header_bytes = 0;
    require(size >= kPrefix, "its {} bytes are too few for a header", size);
    read_at(file_, &header_bytes, kPrefix, 0, path);
    require(header_bytes <= kMaxHeader && header_bytes <= size - kPrefix,
            "its header claims {} bytes but the file has {}", header_bytes, size);
    std::string text(header_bytes, '\0');
    read_at(file_, text.data(), header_bytes, kPrefix, path);
    data_start_ = kPrefix + header_bytes;
    require(text.starts_with('{'), "its header does not begin with '{{'");
    parse_header(text, size - data_start_);
  } catch (const std::exception& error) {
    fail("{} is not a sound safetensors file: {}", path.string(), error.what());
  }
}

void SafetensorsReader::parse_header(const std::string& text, uint64_t data_bytes) {
  const Json header = parse_unique(text);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      require(entry.is_object(), "__metadata__ is not an object");
      for (const auto& [key, value] : entry.items()) {
        require(value.is_string(), "the value of '{}' in __metadata__ is not a string", key);
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    try {
      tensors_.push_back(tensor_of(name, entry, data_bytes));
    } catch (const Error& error) {
      fail("tensor '{}': {}", name, error.what());
    }
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t reached = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorInfo& tensor = tensors_[i];
    require(tensor.begin == reached, "tensor '{}' begins at byte {} of the data, not where the one before ends ({})",
            tensor.name, tensor.begin, reached);
    reached = tensor.end;
    by_name_[tensor.name] = i;
  }
  require(reached == data_bytes, "its tensors end at byte {} of {} bytes of data", reached, data_bytes);
}

const TensorInfo* SafetensorsReader::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void SafetensorsReader::read(const TensorInfo& tensor, void* out) const {
  read_at(file_, out, tensor.end - tensor.begin, data_start_ + tensor.begin, path_);
}

uint64_t safetensors_size(const std::vector<TensorToWrite>& tensors) {
  auto sorted = tensors;
  uint64_t bytes = kPrefix + header_of(sorted).size();
  for (const TensorToWrite& tensor : tensors) {
    bytes += data_size(tensor);
  }
  return bytes;
}

void write_safetensors(FileWriter& file, std::vector<TensorToWrite> tensors) {
  const std::string header = header_of(tensors);
  const uint64_t header_bytes = header.size();
  require(header_bytes <= kMaxHeader, "a safetensors header of {} bytes is longer than the format allows",
          header_bytes);
  file.write(&header_bytes, kPrefix);
  file.write(header);
  for (const TensorToWrite& tensor : tensors) {
    file.write(tensor.data, data_size(tensor));
  }
}

}  // namespace tandem::store
