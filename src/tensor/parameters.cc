#include "tensor/parameters.h"

#include <algorithm>
#include <cmath>

#include "core/philox.h"

namespace tandem::inline tensor {

namespace {

// 16 bytes in bf16, as vector loads and cuBLASLt require.
constexpr int64_t kAlignElements = 8;

uint32_t hash_of(const std::string& name) {  // FNV-1a
  uint32_t hash = 2166136261u;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  }
  return hash;
}

void fill(float* data, const Parameter& parameter, uint64_t seed) {
  PhiloxStream random(seed, 0x1217, hash_of(parameter.name));
  const double glorot = std::sqrt(6.0 / static_cast<double>(parameter.rows + parameter.cols));
  const double deviation = 1.0 / std::sqrt(static_cast<double>(parameter.cols));
  for (int64_t i = 0; i < parameter.size(); ++i) {
    switch (parameter.init) {
      case Init::zero:
        data[i] = 0;
        break;
      case Init::one:
        data[i] = 1;
        break;
      case Init::glorot:
        data[i] = static_cast<float>((2.0 * uniform(random.next()) - 1.0) * glorot);
        break;
      case Init::embedding: {  // Box-Muller
        const double u = (static_cast<double>(random.next()) + 1.0) * 0x1p-32;
        const double v = static_cast<double>(random.next()) * 0x1p-32;
        data[i] = static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * M_PI * v) * deviation);
        break;
      }
    }
  }
}

}  // namespace

ParameterLayout::Id ParameterLayout::add(Parameter parameter) {
  parameter.offset = flat_size_;
  count_ += parameter.size();
  flat_size_ = (flat_size_ + parameter.size() + kAlignElements - 1) / kAlignElements * kAlignElements;
  parameters_.push_back(std::move(parameter));
  return static_cast<Id>(parameters_.size()) - 1;
}

ParameterLayout::Id ParameterLayout::add_matrix(std::string name, int64_t rows, int64_t cols, Init init) {
  return add({std::move(name), rows, cols, false, init});
}

ParameterLayout::Id ParameterLayout::add_vector(std::string name, int64_t size, Init init) {
  return add({std::move(name), 1, size, true, init});
}

View ParameterLayout::in(const View& flat, Id id) const {
  const Parameter& parameter = (*this)[id];
  return flat.slice_cols(parameter.offset, parameter.size()).reshape(parameter.rows, parameter.cols);
}

View ParameterLayout::in(const View& flat, Id first, Id last) const {
  int64_t rows = 0;
  for (Id id = first; id <= last; ++id) {
    const Parameter& parameter = (*this)[id];
    require(parameter.cols == (*this)[first].cols && parameter.offset == (*this)[first].offset + rows * parameter.cols,
            "parameters {} to {} do not lie together", (*this)[first].name, (*this)[last].name);
    rows += parameter.rows;
  }
  return flat.slice_cols((*this)[first].offset, rows * (*this)[first].cols).reshape(rows, (*this)[first].cols);
}

void initialize(const View& masters, const ParameterLayout& layout, uint64_t seed) {
  float* flat = masters.host<float>();
  std::fill_n(flat, layout.flat_size(), 0.0F);
  for (const Parameter& parameter : layout.all()) {
    fill(flat + parameter.offset, parameter, seed);
  }
}

}  // namespace tandem::inline tensor
