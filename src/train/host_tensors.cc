#include "train/host_tensors.h"

namespace tandem {

HostTensors::HostTensors(Backend& backend, const ModelState& weights, const Adam& adam, TeamUpdate* team,
                         Communicator& host, HostCopy::Purpose purpose)
    : team_(team),
      purpose_(purpose),
      flat_(weights.masters().size()),
      weights_(backend, weights.masters(), purpose),
      m_(backend, adam.m(), purpose),
      v_(backend, adam.v(), purpose),
      average_(backend, weights.average(), purpose) {
  if (!sharded()) {
    return;
  }
  whole_m_.resize(static_cast<size_t>(team->padded()));
  whole_v_.resize(whole_m_.size());
  if (purpose == HostCopy::read) {
    team->gather_moment(whole_m_.data(), m_.view().host<float>(), host);
    team->gather_moment(whole_v_.data(), v_.view().host<float>(), host);
  }
}

HostTensors::~HostTensors() noexcept(false) {
  if (sharded() && purpose_ == HostCopy::write && std::uncaught_exceptions() == 0) {
    team_->own_moment(m_.view().host<float>(), whole_m_.data());
    team_->own_moment(v_.view().host<float>(), whole_v_.data());
  }
}

CheckpointTensors HostTensors::views() const {
  const auto whole = [this](const std::vector<float>& values) { return host_view(values.data(), 1, flat_); };
  return {weights_.view(), sharded() ? whole(whole_m_) : m_.view(), sharded() ? whole(whole_v_) : v_.view(),
          average_.view()};
}

}  // namespace tandem
