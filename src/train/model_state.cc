#include "train/model_state.h"

#include <exception>
#include <utility>

namespace tandem {

ModelState::ModelState(Backend& backend, const ParameterLayout& layout, DType compute, bool average, int64_t unit)
    : backend_(backend), size_(layout.flat_size()), padded_((size_ + unit - 1) / unit * unit) {
  require(compute == DType::f32 || compute == DType::bf16, "a model trains in f32 or bf16, not {}", name_of(compute));
  const size_t bytes = static_cast<size_t>(padded_) * sizeof(float);
  masters_ = backend.allocate(bytes);
  gradients_ = backend.allocate(bytes);
  backend.fill_zero(padded(masters()));
  backend.fill_zero(padded(gradients()));
  if (average) {
    average_ = backend.allocate(bytes);
    backend.fill_zero(padded(this->average()));
  }
  if (compute == DType::bf16) {
    copy_ = backend.allocate(bytes / 2);
    backend.fill_zero(padded(copy()));
  }
}

void ModelState::refresh_copy() {
  if (!copy().empty()) {
    backend_.copy(copy(), masters());
  }
}

ModelState::UseAverage::UseAverage(ModelState& state) : state_(state) { exchange(); }

ModelState::UseAverage::~UseAverage() noexcept(false) {
  try {
    exchange();
  } catch (const Error&) {
    if (std::uncaught_exceptions() == 0) {  // otherwise the error that is on its way is the one to tell
      throw;
    }
  }
}

void ModelState::UseAverage::exchange() {
  if (!state_.average().empty()) {
    std::swap(state_.masters_, state_.average_);
    state_.refresh_copy();
  }
}

}  // namespace tandem
