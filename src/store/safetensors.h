// The safetensors format: `u64 N | N bytes of JSON | data`, little-endian, row-major; other tools open these files.
//
// The reader treats the file as hostile: nothing is allocated from a header field before the file is known to be that
// long, and tensors must tile the data exactly.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/file.h"

namespace tandem::store {

struct TensorInfo {
  std::string name;
  std::string dtype;  // "F32", "BF16", ...
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the beginning of the data

  int64_t elements() const;
};

// Bytes of one element; 0 if the format has no such type.
uint64_t safetensors_dtype_size(const std::string& dtype);

class SafetensorsReader {
 public:
  // Reads and checks the header; the error names the file and the fault.
  explicit SafetensorsReader(const std::filesystem::path& path);

  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in the order of the data
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorInfo* find(const std::string& name) const;  // null if there is none

  // Copies the tensor's bytes (end - begin of them).
  void read(const TensorInfo& tensor, void* out) const;

 private:
  void parse_header(const std::string& text, uint64_t data_bytes);

  std::filesystem::path path_;
  Descriptor file_;
  uint64_t data_start_ = 0;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};

// Bytes that write_safetensors will write.
uint64_t safetensors_size(const std::vector<TensorToWrite>& tensors);

// Writes all tensors, ordered as the reference writer does (by type, wider ones first, then by name), with
// `__metadata__ {"format": "pt"}`. The caller finishes the file.
void write_safetensors(FileWriter& file, std::vector<TensorToWrite> tensors);

}  // namespace tandem::store
