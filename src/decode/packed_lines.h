// Sentences one after the other, without padding, on their way to the model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decode/upload_tables.h"
#include "model/batch.h"

namespace tandem::decode {

// Sentences are given as ids without bos and eos.
class PackedLines {
 public:
  void add_source(std::span<const int32_t> ids);  // w1..wn eos
  void add_target(std::span<const int32_t> ids);  // bos w1..wn

  int32_t rows() const { return starts_.back(); }
  model::PackedSide upload(backend::Backend& backend, Arena& arena) const;  // valid until the arena is reset

 private:
  void end_sentence(size_t length);

  std::vector<int32_t> tokens_, position_, starts_{0};
  int64_t longest_ = 0;
};

}  // namespace tandem::decode
