#include "dist/reducer.h"

#include <utility>

#include "core/error.h"

namespace tandem {

Reducer::Reducer(Communicator& communicator, BucketPlan plan, const View& gradients, const ReducerOptions& options,
                 const Allocate& allocate, Convert convert)
    : communicator_(communicator),
      plan_(std::move(plan)),
      gradients_(gradients),
      options_(options),
      allocate_(allocate),
      convert_(std::move(convert)) {
  require(gradients.dtype == DType::f32 && gradients.size() == plan_.padded, "gradients of {} {} for a plan of {} f32",
          gradients.size(), name_of(gradients.dtype), plan_.padded);
  require(options.wire == DType::f32 || options.wire == DType::bf16, "gradients travel as f32 or bf16, not {}",
          name_of(options.wire));
  if (options.wire == DType::bf16) {
    wire_ = allocate(static_cast<size_t>(plan_.padded) * size_of(DType::bf16));
    for (const int64_t count : options.extra) {
      extra_.push_back(allocate(static_cast<size_t>(count) * size_of(DType::bf16)));
    }
  }
}

void Reducer::begin() {
  messages_.clear();
  calls_ = 0;
  extras_ = 0;
}

void Reducer::complete(int64_t begin, int64_t end) {
  require(calls_ < plan_.ready.size(), "gradients [{}, {}) are complete, which the plan does not have", begin, end);
  for (size_t i = calls_ == 0 ? 0 : plan_.ready[calls_ - 1]; i < plan_.ready[calls_]; ++i) {
    const Bucket& bucket = plan_.buckets[i];
    const View values = gradients_.slice_cols(bucket.begin, bucket.count);
    start(values,
          wire_.data() == nullptr ? View{}
                                  : wire_.view(DType::bf16, 1, plan_.padded).slice_cols(bucket.begin, bucket.count),
          options_.scatter);
  }
  ++calls_;
}

void Reducer::add(const View& extra) {
  require(extra.dtype == DType::f32 && extra.contiguous(), "what is added up must be contiguous f32, not {}",
          name_of(extra.dtype));
  const int64_t count = extra.size();
  if (count == 0) {
    return;
  }
  const View flat = extra.reshape(1, count);
  if (options_.wire == DType::f32) {
    start(flat, {}, false);
    return;
  }
  if (extras_ == extra_.size()) {
    extra_.emplace_back();
  }
  Buffer& buffer = extra_[extras_++];
  const size_t bytes = static_cast<size_t>(flat.size()) * size_of(DType::bf16);
  if (buffer.bytes() < bytes) {
    buffer = allocate_(bytes);
  }
  start(flat, buffer.view(DType::bf16, 1, flat.size()), false);
}

void Reducer::start(const View& values, const View& wire, bool scatter) {
  const View sent = wire.empty() ? values : wire;
  if (!wire.empty()) {
    convert_(wire, values);
  }
  messages_.push_back({values, sent, scatter,
                       scatter ? communicator_.start_reduce_scatter(sent) : communicator_.start_all_reduce(sent)});
}

void Reducer::finish() {
  require(calls_ == plan_.ready.size(), "only {} of {} parts of the gradient are complete", calls_, plan_.ready.size());
  for (Message& message : messages_) {
    message.handle.wait();
    if (message.sent.data != message.values.data) {
      const Shard part =
          message.scatter ? communicator_.own_shard(message.values.size()) : Shard{0, message.values.size()};
      convert_(message.values.slice_cols(part.begin, part.count), message.sent.slice_cols(part.begin, part.count));
    }
  }
  messages_.clear();
}

Traffic Reducer::planned_traffic(int64_t extra) const {
  Traffic total = communicator_.planned_all_reduce(extra, options_.wire);
  for (const Bucket& bucket : plan_.buckets) {
    total = total + (options_.scatter ? communicator_.planned_reduce_scatter(bucket.count, options_.wire)
                                      : communicator_.planned_all_reduce(bucket.count, options_.wire));
  }
  return total;
}

}  // namespace tandem
