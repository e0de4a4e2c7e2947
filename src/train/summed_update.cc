#include "train/summed_update.h"

#include <algorithm>

#include "backend/planning.h"

namespace tandem::train {

namespace {

// The ranges that a backward pass declares complete, in its order: found out by a pass that computes nothing.
std::vector<dist::Bucket> complete_ranges(const backend::Backend& backend, const model::ModelConfig& config,
                                          DType compute) {
  backend::PlanningBackend planning(backend);
  const model::Transformer model(planning, config);
  const ModelState weights(planning, model.parameters(), compute, false);
  Arena arena([&planning](size_t bytes) { return planning.allocate(bytes); });
  backend::LossTotals totals;
  StepInput input;
  const BatchLayout layout({64, 64, 1}, config.max_length, config);
  std::vector<dist::Bucket> ranges;
  model::Gradients gradients(weights.gradients());
  gradients.source_rows = gradients.target_rows = make_view(&totals, DType::f32, 1, config.width, Memory::device);
  gradients.complete = [&ranges](int64_t begin, int64_t end) { ranges.push_back({begin, end - begin}); };
  model.train(weights.weights(), gradients, layout.batch(&input, Memory::device), 0, &totals, arena);
  return ranges;
}

dist::BucketPlan plan_for(const backend::Backend& backend, const model::Transformer& model, DType compute, int ranks,
                          int64_t bucket_bytes) {
  return dist::plan_buckets(complete_ranges(backend, model.config(), compute), model.parameters().flat_size(),
                            shard_unit(ranks), bucket_bytes / static_cast<int64_t>(sizeof(float)));
}

std::vector<dist::Bucket> parameter_ranges(const ParameterLayout& layout) {
  std::vector<dist::Bucket> ranges;
  for (const Parameter& parameter : layout.all()) {
    ranges.push_back({parameter.offset, parameter.size()});
  }
  return ranges;
}

// Elements of the target's and the source's rows, if a recorded step must find its memory in place.
std::vector<int64_t> most_rows(const backend::Backend& backend, const model::ModelConfig& config) {
  return backend.traits().replays
             ? std::vector{config.target_vocabulary * config.width, config.source_vocabulary * config.width}
             : std::vector<int64_t>{};
}

}  // namespace

SummedUpdate::SummedUpdate(backend::Backend& backend, const model::Transformer& model, ModelState& weights,
                           dist::Communicator& communicator, const SummedUpdateOptions& options)
    : backend_(backend),
      model_(model),
      weights_(weights),
      communicator_(communicator),
      options_(options),
      wide_values_(
          wide() ? backend.allocate(static_cast<size_t>(weights.padded(weights.gradients()).size()) * sizeof(double))
                 : Buffer()),
      reducer_(
          communicator,
          plan_for(backend, model, weights.weights().compute.dtype, communicator.size(), options.bucket_bytes),
          values(), weights.padded(weights.gradients()), {options.wire, scatters(), most_rows(backend, model.config())},
          [&backend](size_t bytes) { return backend.allocate(bytes); },
          [&backend](const View& to, const View& from) { backend.copy(to, from); }),
      own_{{0, model.parameters().flat_size(), 0}} {
  const std::vector<dist::Bucket> buckets = reducer_.plan().all();
  if (options.shard_optimizer) {
    shards_ = options.whole_parameters ? dist::whole_shards(parameter_ranges(model.parameters()), communicator.size())
                                       : dist::equal_shards(buckets, communicator.size());
    own_ = shards_[own_number()];
  }
  if (backend.traits().replays) {
    reserve({model.config().source_vocabulary, model.config().target_vocabulary});
  }
  if (wide()) {
    backend.fill_zero(values());
  }
  squares_ = backend.allocate(buckets.size() * static_cast<size_t>(communicator.size()) * sizeof(double));
}

// ---- a step

View SummedUpdate::values() const {
  const View sums = weights_.padded(weights_.gradients());
  return wide() ? wide_values_.view(DType::f64, 1, sums.size()) : sums;
}

View SummedUpdate::row_sums(Side side) const {
  const Rows& rows = rows_[index_of(side)];
  return rows.sums.view(DType::f32, rows.count, model_.config().width);
}

View SummedUpdate::row_values(Side side) const {
  const Rows& rows = rows_[index_of(side)];
  return wide() ? rows.values.view(DType::f64, rows.count, model_.config().width) : row_sums(side);
}

void SummedUpdate::reserve(const IdCounts& ids) {
  for (const Side side : {Side::source, Side::target}) {
    Rows& own = rows_[index_of(side)];
    own.count = side == Side::source ? ids.source : ids.target;
    const auto elements = static_cast<size_t>(own.count * model_.config().width);
    if (own.sums.bytes() < elements * sizeof(float)) {
      own.sums = backend_.allocate(elements * sizeof(float));
      own.values = wide() ? backend_.allocate(elements * sizeof(double)) : Buffer();
    }
  }
}

void SummedUpdate::begin(const StepIds& ids) {
  reserve({ids.source.cols, ids.target.cols});
  backend_.fill_zero(row_values(Side::source));
  backend_.fill_zero(row_values(Side::target));
  reducer_.begin();
}

model::Gradients SummedUpdate::gradients(bool last) {
  model::Gradients gradients(values().slice_cols(0, model_.parameters().flat_size()));
  gradients.source_rows = row_values(Side::source);
  gradients.target_rows = row_values(Side::target);
  if (last) {
    gradients.complete = [this](int64_t begin, int64_t end) { reducer_.complete(begin, end); };
    gradients.rows_complete = [this](Side side) { reducer_.add(row_values(side), row_sums(side)); };
  }
  return gradients;
}

void SummedUpdate::finish(optim::Optimizer& optimizer, const StepIds& ids, StepInput* input, StepResult* result) {
  const auto stamp = [this](uint64_t* time) {
    if (communicator_.size() > 1) {
      backend_.stamp(time);
    }
  };
  const Memory memory = weights_.masters().memory;
  backend_.copy(make_view(&result->sums.pause, DType::f64, 1, 1, memory),
                make_view(&input->pause, DType::f64, 1, 1, memory));
  stamp(&result->clock.joining);
  join(&result->sums);
  stamp(&result->clock.joined);
  add_looked_up_rows(ids);
  optimizer.prepare(&result->update, sum_squares());
  const optim::UpdateBuffers buffers{weights_.padded(weights_.masters()), weights_.padded(weights_.copy()),
                                     weights_.padded(weights_.average()), weights_.padded(weights_.gradients())};
  for (const dist::ShardPiece& piece : own_) {
    optimizer.update(buffers.slice(piece.begin, piece.count), piece.first, &input->state, &result->update);
  }
  stamp(&result->clock.sharing);
  if (options_.shard_optimizer) {
    complete(weights_.masters());
    weights_.refresh_copy();
  }
}

// Afterwards the sums over all ranks are there.
void SummedUpdate::join(StepSums* sums) {
  static_assert(sizeof(StepSums) % sizeof(double) == 0);
  dist::Handle sums_there = communicator_.start_all_reduce(
      make_view(sums, DType::f64, 1, sizeof(StepSums) / sizeof(double), weights_.masters().memory));
  reducer_.finish();
  sums_there.wait();
}

void SummedUpdate::add_looked_up_rows(const StepIds& ids) {
  const View gradients = weights_.gradients();
  const auto table = [&](Side side) { return model_.parameters().in(gradients, model_.table(side)); };
  for (const dist::Bucket& looked_up : wide() ? reducer_.plan().rest : std::vector<dist::Bucket>{}) {
    backend_.fill_zero(weights_.padded(gradients).slice_cols(looked_up.begin, looked_up.count));
  }
  backend_.run(backend::op::AddRows{.table = table(Side::target), .ids = ids.target, .rows = row_sums(Side::target)});
  backend_.run(backend::op::AddRows{.table = table(Side::source), .ids = ids.source, .rows = row_sums(Side::source)});
}

// f64 [1, ranks * buckets]: by shard, then by bucket.
View SummedUpdate::sum_squares() {
  const View gradients = weights_.padded(weights_.gradients());
  const std::vector<dist::ShardPieces> shards = dist::equal_shards(reducer_.plan().all(), communicator_.size());
  const auto buckets = static_cast<int64_t>(shards[0].size());
  const View sums = squares_.view(DType::f64, 1, buckets * communicator_.size());
  if (scatters()) {
    backend_.fill_zero(sums);
  }
  for (int number = 0; number < communicator_.size(); ++number) {
    for (int64_t i = 0; i < buckets && (!scatters() || number == communicator_.shard_number()); ++i) {
      const dist::ShardPiece& piece = shards[static_cast<size_t>(number)][static_cast<size_t>(i)];
      backend_.run(backend::op::SumOfSquares{.sum = sums.slice_cols(number * buckets + i, 1),
                                             .x = gradients.slice_cols(piece.begin, piece.count)});
    }
  }
  if (scatters()) {
    communicator_.all_reduce(sums);
  }
  return sums;
}

// ---- whole buffers from what the ranks keep

void SummedUpdate::complete(const View& flat) {
  if (!options_.shard_optimizer || flat.empty()) {
    return;
  }
  const View padded = weights_.padded(flat);
  std::vector<dist::Handle> handles;
  if (options_.whole_parameters) {  // each rank's parameters are neighbours
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      if (const dist::ShardPieces& pieces = shards_[static_cast<size_t>(rank)]; !pieces.empty()) {
        const int64_t begin = pieces.front().begin, end = pieces.back().begin + pieces.back().count;
        handles.push_back(communicator_.start_broadcast(padded.slice_cols(begin, end - begin), rank));
      }
    }
  } else {
    for (const dist::Bucket& bucket : reducer_.plan().all()) {
      handles.push_back(communicator_.start_all_gather(padded.slice_cols(bucket.begin, bucket.count)));
    }
  }
  for (dist::Handle& handle : handles) {
    handle.wait();
  }
}

std::vector<dist::ShardPieces> SummedUpdate::shards(dist::Communicator& host) const {
  if (!options_.shard_optimizer) {
    return {};
  }
  std::vector<double> numbers(static_cast<size_t>(host.size()));  // of each rank's shard
  numbers[static_cast<size_t>(host.rank())] = static_cast<double>(own_number());
  host.all_reduce(host_view(numbers.data(), 1, host.size()));
  std::vector<dist::ShardPieces> by_rank;
  for (const double number : numbers) {
    by_rank.push_back(shards_[static_cast<size_t>(number)]);
  }
  return by_rank;
}

dist::Traffic SummedUpdate::planned_traffic(const IdCounts& ids) const {
  dist::Traffic total = reducer_.planned_traffic((ids.source + ids.target) * model_.config().width) +
                        communicator_.planned_all_reduce(sizeof(StepSums) / sizeof(double), DType::f64);
  if (!options_.shard_optimizer) {
    return total;
  }
  const std::vector<dist::Bucket> buckets = reducer_.plan().all();
  for (const dist::Bucket& bucket : buckets) {
    total = total + communicator_.planned_all_gather(bucket.count, DType::f32);
  }
  return scatters() ? total + communicator_.planned_all_reduce(
                                  static_cast<int64_t>(buckets.size()) * communicator_.size(), DType::f64)
                    : total;
}

}  // namespace tandem::train
