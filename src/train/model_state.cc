#include "train/model_state.h"

#include <utility>

namespace tandem {

ModelState::ModelState(Backend& backend, const ParameterLayout& layout, DType compute, bool average)
    : backend_(backend), size_(layout.flat_size()) {
  require(compute == DType::f32 || compute == DType::bf16, "a model trains in f32 or bf16, not {}", name_of(compute));
  const size_t bytes = static_cast<size_t>(size_) * sizeof(float);
  masters_ = backend.allocate(bytes);
  gradients_ = backend.allocate(bytes);
  backend.fill_zero(masters());
  backend.fill_zero(gradients());
  if (average) {
    average_ = backend.allocate(bytes);
    backend.fill_zero(this->average());
  }
  if (compute == DType::bf16) {
    copy_ = backend.allocate(bytes / 2);
    backend.fill_zero(copy());
  }
}

void ModelState::refresh_copy() {
  if (!copy().empty()) {
    backend_.copy(copy(), masters());
  }
}

ModelState::UseAverage::UseAverage(ModelState& state) : state_(state) {
  if (!state_.average().empty()) {
    std::swap(state_.masters_, state_.average_);
    state_.refresh_copy();
  }
}

ModelState::UseAverage::~UseAverage() {
  if (!state_.average().empty()) {
    std::swap(state_.masters_, state_.average_);
    state_.refresh_copy();
  }
}

}  // namespace tandem
