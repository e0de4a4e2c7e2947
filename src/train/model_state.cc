#include "train/model_state.h"

#include <exception>
#include <utility>

namespace tandem::train {

ModelState::ModelState(backend::Backend& backend, const ParameterLayout& layout, DType compute, bool average,
                       int64_t unit)
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

void ModelState::with_average(const std::function<void()>& use) {
  std::exception_ptr first_failure;
  exchange_average();
  for (const std::function<void()>& part : {use, std::function<void()>([this] { exchange_average(); })}) {
    try {
      part();
    } catch (...) {
      first_failure = first_failure ? first_failure : std::current_exception();
    }
  }
  if (first_failure) {
    std::rethrow_exception(first_failure);
  }
}

void ModelState::exchange_average() {
  if (!average().empty()) {
    std::swap(masters_, average_);
    refresh_copy();
  }
}

}  // namespace tandem::train
