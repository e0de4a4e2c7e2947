// A contiguous f32 view for use in host memory: the view itself if it lies there, else a copy of it. To write it, say
// so with commit().
#pragma once

#include <vector>

#include "backend/backend.h"

namespace tandem::train {

class HostCopy {
 public:
  enum Purpose : uint8_t { read, write };  // to write: what it holds at first means nothing

  // An empty view stays empty.
  HostCopy(backend::Backend& backend, const View& view, Purpose purpose) : backend_(&backend), target_(view) {
    if (view.memory == Memory::device && !view.empty()) {
      copy_.resize(static_cast<size_t>(view.size()));
      if (purpose == read) {
        backend.download(copy_.data(), view);
      }
    }
  }
  HostCopy(HostCopy&&) = default;

  View view() const { return copy_.empty() ? target_ : host_view(copy_.data(), target_.rows, target_.cols); }

  // Brings what was written to where the view lies.
  void commit() {
    if (!copy_.empty()) {
      backend_->upload(target_, copy_.data());
      backend_->wait();
    }
  }

 private:
  backend::Backend* backend_;
  View target_;
  std::vector<float> copy_;
};

}  // namespace tandem::train
