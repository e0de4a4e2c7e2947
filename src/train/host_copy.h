// A contiguous f32 view in host memory while this lives: the view itself where it lies there, else a copy that is read
// from the device at the beginning or written to it at the end.
#pragma once

#include <exception>
#include <vector>

#include "backend/backend.h"

namespace tandem {

class HostCopy {
 public:
  enum Purpose : uint8_t { read, write };

  // An empty view stays empty.
  HostCopy(Backend& backend, const View& view, Purpose purpose) : backend_(backend), target_(view), purpose_(purpose) {
    if (view.memory == Memory::device && !view.empty()) {
      copy_.resize(static_cast<size_t>(view.size()));
      if (purpose == read) {
        backend.download(copy_.data(), view);
      }
    }
  }
  ~HostCopy() noexcept(false) {
    if (!copy_.empty() && purpose_ == write && std::uncaught_exceptions() == 0) {
      backend_.upload(target_, copy_.data());
      backend_.wait();
    }
  }
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  View view() const { return copy_.empty() ? target_ : host_view(copy_.data(), target_.rows, target_.cols); }

 private:
  Backend& backend_;
  View target_;
  Purpose purpose_;
  std::vector<float> copy_;
};

}  // namespace tandem
