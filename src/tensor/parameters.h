// The flat parameter store: where each named parameter lies in one flat buffer.
//
// Masters, gradients, both Adam moments and the bf16 copy that the arithmetic reads all have this layout, so the
// optimizer is one kernel, a gradient bucket is a slice and a checkpoint is a dump.
#pragma once

#include <string>
#include <vector>

#include "tensor/view.h"

namespace tandem::inline tensor {

enum class Init : uint8_t { zero, one, glorot, embedding };

struct Parameter {
  std::string name;
  int64_t rows = 0;  // 1 for a vector
  int64_t cols = 0;
  bool is_vector = false;
  Init init = Init::zero;
  int64_t offset = 0;  // elements from the beginning of a flat buffer

  int64_t size() const { return rows * cols; }
};

class ParameterLayout {
 public:
  using Id = int;

  Id add_matrix(std::string name, int64_t rows, int64_t cols, Init init);
  Id add_vector(std::string name, int64_t size, Init init);

  const std::vector<Parameter>& all() const { return parameters_; }
  const Parameter& operator[](Id id) const { return parameters_[static_cast<size_t>(id)]; }

  // The parameter's part of a flat buffer.
  View in(const View& flat, Id id) const;
  // Consecutive matrices of equal width [first, last] as one tall matrix.
  View in(const View& flat, Id first, Id last) const;

  int64_t count() const { return count_; }          // parameters of the model
  int64_t flat_size() const { return flat_size_; }  // elements of a flat buffer, alignment included

 private:
  Id add(Parameter parameter);

  std::vector<Parameter> parameters_;
  int64_t count_ = 0;
  int64_t flat_size_ = 0;
};

// Fills host f32 masters [1, flat_size]: Glorot uniform matrices, N(0, cols^-0.5) embeddings, zeros and ones. The
// values depend only on (seed, parameter name).
void initialize(const View& masters, const ParameterLayout& layout, uint64_t seed);

}  // namespace tandem::inline tensor
