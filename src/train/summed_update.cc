#include "train/summed_update.h"

#include <algorithm>

#include "backend/planning.h"
#include "train/batch_layout.h"

namespace tandem {

namespace {

// The calls that a backward pass makes of Gradients, in its order: found out by a pass that computes nothing.
std::vector<TeamUpdate::Call> calls_of(const Backend& backend, const ModelConfig& config, DType compute) {
  PlanningBackend planning(backend);
  const Transformer model(planning, config);
  const ModelState weights(planning, model.parameters(), compute, false);
  Arena arena([&planning](size_t bytes) { return planning.allocate(bytes); });
  LossTotals totals;
  StepState state;
  const BatchLayout layout({64, 64, 1}, config.max_length, config);
  std::vector<TeamUpdate::Call> calls;
  Gradients gradients(weights.gradients());
  gradients.source_rows = gradients.target_rows = make_view(&totals, DType::f32, 1, config.width, Memory::device);
  gradients.complete = [&calls](int64_t begin, int64_t end) { calls.push_back({{begin, end - begin}, std::nullopt}); };
  gradients.rows_complete = [&calls](Side side) { calls.push_back({{}, side}); };
  model.train(weights.weights(), gradients, layout.batch(&state, Memory::device), 0, &totals, arena);
  return calls;
}

BucketPlan plan_for(const std::vector<TeamUpdate::Call>& calls, const Transformer& model, int ranks,
                    const TeamUpdateOptions& options) {
  std::vector<Bucket> ranges;
  for (const TeamUpdate::Call& call : calls) {
    if (!call.rows) {
      ranges.push_back(call.range);
    }
  }
  return plan_buckets(ranges, model.parameters().flat_size(), TeamUpdate::unit(ranks),
                      options.bucket_bytes / static_cast<int64_t>(sizeof(float)));
}

// Elements of the target's and the source's rows, where a recorded step must find its memory in place.
std::vector<int64_t> most_rows(const Backend& backend, const ModelConfig& config) {
  return backend.traits().replays
             ? std::vector{config.target_vocabulary * config.width, config.source_vocabulary * config.width}
             : std::vector<int64_t>{};
}

}  // namespace

TeamUpdate::TeamUpdate(Backend& backend, const Transformer& model, ModelState& weights, Communicator& communicator,
                       const TeamUpdateOptions& options)
    : backend_(backend),
      model_(model),
      weights_(weights),
      communicator_(communicator),
      options_(options),
      calls_(calls_of(backend, model.config(), weights.weights().compute.dtype)),
      wide_values_(
          wide() ? backend.allocate(static_cast<size_t>(weights.padded(weights.gradients()).size()) * sizeof(double))
                 : Buffer()),
      reducer_(
          communicator, plan_for(calls_, model, communicator.size(), options), values(),
          weights.padded(weights.gradients()),
          {options.wire, options.shard_optimizer, most_rows(backend, model.config())},
          [&backend](size_t bytes) { return backend.allocate(bytes); },
          [&backend](const View& to, const View& from) { backend.copy(to, from); }) {
  for (const Bucket& bucket : reducer_.plan().all()) {
    const Shard shard = communicator.own_shard(bucket.count);
    own_.push_back({bucket.begin + shard.begin, shard.count, moments_});
    moments_ += shard.count;
  }
  moments_ = options.shard_optimizer ? moments_ : model.parameters().flat_size();
  if (backend.traits().replays) {
    reserve(model.config().source_vocabulary, model.config().target_vocabulary);
  }
  if (wide()) {
    backend.fill_zero(values());
  }
  sums_ = backend.allocate(own_.size() * static_cast<size_t>(communicator.size()) * sizeof(double));
}

// ---- a step

View TeamUpdate::values() const {
  const View sums = weights_.padded(weights_.gradients());
  return wide() ? wide_values_.view(DType::f64, 1, sums.size()) : sums;
}

View TeamUpdate::row_sums(Side side) const {
  const Rows& rows = rows_[index_of(side)];
  return rows.sums.view(DType::f32, rows.count, model_.config().width);
}

View TeamUpdate::row_values(Side side) const {
  const Rows& rows = rows_[index_of(side)];
  return wide() ? rows.values.view(DType::f64, rows.count, model_.config().width) : row_sums(side);
}

void TeamUpdate::reserve(int64_t source_rows, int64_t target_rows) {
  for (const Side side : {Side::source, Side::target}) {
    Rows& own = rows_[index_of(side)];
    own.count = side == Side::source ? source_rows : target_rows;
    const auto elements = static_cast<size_t>(own.count * model_.config().width);
    if (own.sums.bytes() < elements * sizeof(float)) {
      own.sums = backend_.allocate(elements * sizeof(float));
      own.values = wide() ? backend_.allocate(elements * sizeof(double)) : Buffer();
    }
  }
}

void TeamUpdate::begin(int64_t source_rows, int64_t target_rows) {
  reserve(source_rows, target_rows);
  backend_.fill_zero(row_values(Side::source));
  backend_.fill_zero(row_values(Side::target));
  reducer_.begin();
}

Gradients TeamUpdate::gradients(bool last) {
  Gradients gradients(values().slice_cols(0, model_.parameters().flat_size()));
  gradients.source_rows = row_values(Side::source);
  gradients.target_rows = row_values(Side::target);
  if (last) {
    gradients.complete = [this](int64_t begin, int64_t end) { reducer_.complete(begin, end); };
    gradients.rows_complete = [this](Side side) { add_rows(side); };
  }
  return gradients;
}

void TeamUpdate::no_part() {
  backend_.fill_zero(values());
  for (const Call& call : calls_) {
    if (call.rows) {
      add_rows(*call.rows);
    } else {
      reducer_.complete(call.range.begin, call.range.begin + call.range.count);
    }
  }
}

void TeamUpdate::join(const View& totals) {
  Handle totals_there = communicator_.start_all_reduce(totals);
  reducer_.finish();
  totals_there.wait();
}

void TeamUpdate::update(Adam& adam, const View& source_ids, const View& target_ids, const StepState* state,
                        UpdateState* update) {
  const View gradients = weights_.gradients();
  const auto table = [&](Side side) { return model_.parameters().in(gradients, model_.table(side)); };
  for (const Bucket& looked_up : wide() ? reducer_.plan().rest : std::vector<Bucket>{}) {
    backend_.fill_zero(weights_.padded(gradients).slice_cols(looked_up.begin, looked_up.count));
  }
  backend_.run(op::AddRows{.table = table(Side::target), .ids = target_ids, .rows = row_sums(Side::target)});
  backend_.run(op::AddRows{.table = table(Side::source), .ids = source_ids, .rows = row_sums(Side::source)});

  backend_.run(op::PrepareUpdate{.update = update, .sums = sum_squares(), .settings = adam.settings()});
  const AdamBuffers buffers{weights_.padded(weights_.masters()), weights_.padded(weights_.copy()),
                            weights_.padded(weights_.average()), weights_.padded(gradients)};
  if (!sharded()) {
    adam.apply(buffers.slice(0, model_.parameters().flat_size()), 0, state, update);
    return;
  }
  for (const Piece& piece : own_) {
    adam.apply(buffers.slice(piece.begin, piece.count), piece.first, state, update);
  }
}

void TeamUpdate::share() {
  if (sharded()) {
    gather(weights_.masters());
    weights_.refresh_copy();
  }
}

// f64 [1, ranks * pieces]: by shard, then by bucket.
View TeamUpdate::sum_squares() {
  const View gradients = weights_.padded(weights_.gradients());
  const std::vector<Bucket> buckets = reducer_.plan().all();
  const auto pieces = static_cast<int64_t>(buckets.size());
  const View sums = sums_.view(DType::f64, 1, pieces * communicator_.size());
  if (sharded()) {
    backend_.fill_zero(sums);
  }
  for (int shard = 0; shard < communicator_.size(); ++shard) {
    if (sharded() && shard != communicator_.shard_number()) {
      continue;
    }
    for (int64_t i = 0; i < pieces; ++i) {
      const Bucket& bucket = buckets[static_cast<size_t>(i)];
      const Shard part = shard_of(bucket.count, communicator_.size(), shard);
      backend_.run(op::SumOfSquares{.sum = sums.slice_cols(shard * pieces + i, 1),
                                    .x = gradients.slice_cols(bucket.begin + part.begin, part.count)});
    }
  }
  if (sharded()) {
    communicator_.all_reduce(sums);
  }
  return sums;
}

// ---- whole buffers from what the ranks keep

void TeamUpdate::gather(const View& flat) {
  const View padded = weights_.padded(flat);
  std::vector<Handle> handles;
  for (const Bucket& bucket : reducer_.plan().all()) {
    handles.push_back(communicator_.start_all_gather(padded.slice_cols(bucket.begin, bucket.count)));
  }
  for (Handle& handle : handles) {
    handle.wait();
  }
}

void TeamUpdate::complete_average() {
  if (sharded() && !weights_.average().empty()) {
    gather(weights_.average());
  }
}

void TeamUpdate::gather_moment(float* whole, const float* own, Communicator& host) const {
  const int ranks = host.size();
  std::vector<double> numbers(static_cast<size_t>(ranks));  // of each rank's shard: `host` goes by ranks
  numbers[static_cast<size_t>(host.rank())] = communicator_.shard_number();
  host.all_reduce(host_view(numbers.data(), 1, ranks));
  const std::vector<Bucket> buckets = reducer_.plan().all();
  std::vector<float> by_rank;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const int64_t count = buckets[i].count;
    by_rank.resize(static_cast<size_t>(count));
    std::copy_n(own + own_[i].first, own_[i].count, by_rank.data() + host.own_shard(count).begin);
    host.all_gather(host_view(by_rank.data(), 1, count));
    for (int rank = 0; rank < ranks; ++rank) {
      const Shard from = shard_of(count, ranks, rank);
      const Shard to = shard_of(count, ranks, static_cast<int>(numbers[static_cast<size_t>(rank)]));
      std::copy_n(by_rank.data() + from.begin, to.count, whole + buckets[i].begin + to.begin);
    }
  }
}

void TeamUpdate::own_moment(float* own, const float* whole) const {
  for (const Piece& piece : own_) {
    std::copy_n(whole + piece.begin, piece.count, own + piece.first);
  }
}

Traffic TeamUpdate::planned_traffic(int64_t source_rows, int64_t target_rows) const {
  Traffic total = reducer_.planned_traffic((source_rows + target_rows) * model_.config().width) +
                  communicator_.planned_all_reduce(sizeof(LossTotals) / sizeof(double) + 1, DType::f64);
  if (sharded()) {
    const std::vector<Bucket> buckets = reducer_.plan().all();
    for (const Bucket& bucket : buckets) {
      total = total + communicator_.planned_all_gather(bucket.count, DType::f32);
    }
    total = total +
            communicator_.planned_all_reduce(static_cast<int64_t>(buckets.size()) * communicator_.size(), DType::f64);
  }
  return total;
}

std::optional<TeamUpdate> make_team_update(Backend& backend, const Transformer& model, ModelState& weights,
                                           Communicator& communicator, const DistConfig& config) {
  const DType wire = wire_type(config, backend, weights.weights().compute.dtype);
  if (communicator.size() == 1 && wire != DType::f64) {
    return std::nullopt;
  }
  return std::optional<TeamUpdate>(
      std::in_place, backend, model, weights, communicator,
      TeamUpdateOptions{wire, config.shard_optimizer, static_cast<int64_t>(config.bucket_mb * (1 << 20))});
}

DType wire_type(const DistConfig& config, const Backend& backend, DType compute) {
  using Wire = DistConfig::Wire;
  require(config.wire != Wire::f64 || !backend.traits().replays,
          "dist.wire = \"f64\" is for CPUs: use \"auto\", \"f32\" or \"bf16\" on GPUs");
  const bool automatic_f64 = compute == DType::f32 && !backend.traits().replays;
  return config.wire == Wire::f64 || (config.wire == Wire::automatic && automatic_f64) ? DType::f64
         : config.wire == Wire::bf16                                                   ? DType::bf16
                                                                                       : DType::f32;
}

}  // namespace tandem
