#include "dist/reducer.h"

#include <utility>

#include "core/error.h"

namespace tandem::dist {

Reducer::Reducer(Communicator& communicator, BucketPlan plan, const View& values, const View& sums,
                 const ReducerOptions& options, const Allocate& allocate, Convert convert)
    : communicator_(communicator),
      plan_(std::move(plan)),
      values_(values),
      sums_(sums),
      options_(options),
      allocate_(allocate),
      convert_(std::move(convert)) {
  require(options.wire != DType::i32, "gradients are sent as f32, bf16 or f64, not {}", name_of(options.wire));
  const DType type = options.wire == DType::f64 ? DType::f64 : DType::f32;
  require(values.dtype == type && sums.dtype == DType::f32, "gradients in {} and sums in {} cannot be sent as {}",
          name_of(values.dtype), name_of(sums.dtype), name_of(options.wire));
  require(values.size() == plan_.padded && sums.size() == plan_.padded, "{} gradients and {} sums for a plan of {}",
          values.size(), sums.size(), plan_.padded);
  if (options.wire == DType::bf16) {
    copies_ = allocate(static_cast<size_t>(plan_.padded) * size_of(DType::bf16));
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
  require(calls_ < plan_.ready.size(), "the plan has no gradient range [{}, {})", begin, end);
  for (size_t i = calls_ == 0 ? 0 : plan_.ready[calls_ - 1]; i < plan_.ready[calls_]; ++i) {
    const auto bucket = [&](const View& all) { return all.slice_cols(plan_.buckets[i].begin, plan_.buckets[i].count); };
    start(bucket(values_), bucket(sums_),
          copies_.data() == nullptr ? View{} : bucket(copies_.view(DType::bf16, 1, plan_.padded)), options_.scatter);
  }
  ++calls_;
}

void Reducer::add(const View& values, const View& sums) {
  require(values.contiguous() && sums.contiguous() && values.size() == sums.size(),
          "{} values and {} sums, or not contiguous", values.size(), sums.size());
  const int64_t count = values.size();
  if (count == 0) {
    return;
  }
  View copy;
  if (options_.wire == DType::bf16) {
    if (extras_ == extra_.size()) {
      extra_.emplace_back();
    }
    Buffer& buffer = extra_[extras_++];
    const size_t bytes = static_cast<size_t>(count) * size_of(DType::bf16);
    if (buffer.bytes() < bytes) {
      buffer = allocate_(bytes);
    }
    copy = buffer.view(DType::bf16, 1, count);
  }
  start(values.reshape(1, count), sums.reshape(1, count), copy, false);
}

void Reducer::start(const View& values, const View& sums, const View& copy, bool scatter) {
  const bool wide = options_.wire == DType::f64;
  if (wide && communicator_.size() == 1) {
    convert_(sums, values);
    return;
  }
  if (wide && !scatter) {
    messages_.push_back({sums, sums, scatter, communicator_.start_rounded_all_reduce(sums, values)});
    return;
  }
  if (!copy.empty()) {
    convert_(copy, values);
  }
  const View sent = copy.empty() ? values : copy;
  messages_.push_back(
      {sums, sent, scatter, scatter ? communicator_.start_reduce_scatter(sent) : communicator_.start_all_reduce(sent)});
}

void Reducer::finish() {
  require(calls_ == plan_.ready.size(), "only {} of {} parts of the gradient are complete", calls_, plan_.ready.size());
  for (Message& message : messages_) {
    message.handle.wait();
    if (message.sent.data != message.sums.data) {
      const Shard part = message.scatter ? communicator_.own_shard(message.sums.size()) : Shard{0, message.sums.size()};
      convert_(message.sums.slice_cols(part.begin, part.count), message.sent.slice_cols(part.begin, part.count));
    }
  }
  messages_.clear();
}

Traffic Reducer::planned_traffic(int64_t extra) const {
  const auto everywhere = [this](int64_t count) {
    return options_.wire == DType::f64 ? communicator_.planned_rounded_all_reduce(count)
                                       : communicator_.planned_all_reduce(count, options_.wire);
  };
  Traffic total = everywhere(extra);
  for (const Bucket& bucket : plan_.buckets) {
    total = total + (options_.scatter ? communicator_.planned_reduce_scatter(bucket.count, options_.wire)
                                      : everywhere(bucket.count));
  }
  return total;
}

}  // namespace tandem::dist
