#include "train/gradient_update.h"

#include <array>
#include <vector>

#include "dist/reducer.h"
#include "train/memory_plan.h"

namespace tandem::train {

namespace {

// The update of a rank that trains alone.
class OwnUpdate final : public GradientUpdate {
 public:
  OwnUpdate(backend::Backend& backend, ModelState& weights)
      : backend_(backend), weights_(weights), squares_(backend.allocate(sizeof(double))) {}

  int64_t own_parameters() const override { return weights_.masters().size(); }
  void begin(const StepIds& /*ids*/) override {}
  model::Gradients gradients(bool /*last*/) override { return weights_.gradients(); }
  void finish(optim::Optimizer& optimizer, const StepIds& /*ids*/, StepInput* input, StepResult* result) override {
    const View squares = squares_.view(DType::f64, 1, 1);
    backend_.run(backend::op::SumOfSquares{.sum = squares, .x = weights_.gradients()});
    optimizer.prepare(&result->update, squares);
    optimizer.update({weights_.masters(), weights_.copy(), weights_.average(), weights_.gradients()}, 0, &input->state,
                     &result->update);
  }

 private:
  backend::Backend& backend_;
  ModelState& weights_;
  Buffer squares_;  // f64: the gradient's sum of squares
};

// ---- several ranks

// The ranges that a backward pass declares complete, in its order, from a pass that computes nothing.
std::vector<dist::Bucket> complete_ranges(const backend::Backend& backend, const model::ModelConfig& config,
                                          DType compute) {
  std::vector<dist::Bucket> ranges;
  plan_pass(backend, config, compute, BatchLayout({64, 64, 1}, config.max_length, config),
            [&ranges](const PlannedPass& pass) {
              model::Gradients gradients(pass.weights.gradients());
              gradients.source_rows = gradients.target_rows =
                  make_view(pass.totals, DType::f32, 1, pass.model.config().width, Memory::device);
              gradients.complete = [&ranges](int64_t begin, int64_t end) { ranges.push_back({begin, end - begin}); };
              pass.model.train(pass.weights.weights(), gradients, pass.batch, 0, pass.totals, pass.arena);
            });
  return ranges;
}

dist::BucketPlan plan_for(const backend::Backend& backend, const model::Transformer& model, DType compute, int ranks,
                          const DistConfig& config) {
  return dist::plan_buckets(complete_ranges(backend, model.config(), compute), model.parameters().flat_size(),
                            shard_unit(ranks),
                            static_cast<int64_t>(config.bucket_mb * (1 << 20)) / static_cast<int64_t>(sizeof(float)));
}

// Adds up the gradients of several ranks while the backward pass continues; the update that follows has the same bits
// on all of them.
//
// If gradients are sent as f64, the sums over the parts of a step (data/batcher.h) are made in f64, which is exact, and
// rounded to f32 once. So the update has the same bits for any number of ranks that take whole parts, and for one rank,
// which makes its sums here as well.
//
// With a sharded optimizer every rank keeps the optimizer's state for a part of the model, updates that part of the
// masters, and gets the rest from the others. Sums, norm and update use the same pieces in the same order either way,
// so the weights have the same bits.
class SummedUpdate final : public GradientUpdate {
 public:
  SummedUpdate(backend::Backend& backend, const model::Transformer& model, ModelState& weights,
               dist::Communicator& communicator, const DistConfig& config, DType wire, bool whole_parameters)
      : backend_(backend),
        model_(model),
        weights_(weights),
        communicator_(communicator),
        wire_(wire),
        sharded_(config.shard_optimizer),
        whole_parameters_(whole_parameters),
        wide_values_(wide() ? backend.allocate(static_cast<size_t>(sums().size()) * sizeof(double)) : Buffer()),
        reducer_(
            communicator, plan_for(backend, model, weights.weights().compute.dtype, communicator.size(), config),
            values(), sums(), {wire, scatters(), elements_in_advance()},
            [&backend](size_t bytes) { return backend.allocate(bytes); },
            [&backend](const View& to, const View& from) { backend.copy(to, from); }),
        own_{{0, model.parameters().flat_size(), 0}} {
    const std::vector<dist::Bucket> buckets = reducer_.plan().all();
    if (sharded_) {
      shards_ = whole_parameters_ ? dist::whole_shards(parameter_ranges(), communicator.size())
                                  : dist::equal_shards(buckets, communicator.size());
      own_ = shards_[own_number()];
    }
    reserve(ids_in_advance(backend, model.config()));
    if (wide()) {
      backend.fill_zero(values());
    }
    squares_ = backend.allocate(buckets.size() * static_cast<size_t>(communicator.size()) * sizeof(double));
  }

  int64_t own_parameters() const override { return dist::elements_of(own_); }

  // ---- a step

  void begin(const StepIds& ids) override {
    reserve({ids.source.cols, ids.target.cols});
    backend_.fill_zero(row_values(Side::source));
    backend_.fill_zero(row_values(Side::target));
    reducer_.begin();
  }

  model::Gradients gradients(bool last) override {
    model::Gradients gradients(values().slice_cols(0, model_.parameters().flat_size()));
    gradients.source_rows = row_values(Side::source);
    gradients.target_rows = row_values(Side::target);
    if (last) {
      gradients.complete = [this](int64_t begin, int64_t end) { reducer_.complete(begin, end); };
      gradients.rows_complete = [this](Side side) { reducer_.add(row_values(side), row_sums(side)); };
    }
    return gradients;
  }

  void finish(optim::Optimizer& optimizer, const StepIds& ids, StepInput* input, StepResult* result) override {
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
                                       weights_.padded(weights_.average()), sums()};
    for (const dist::ShardPiece& piece : own_) {
      optimizer.update(buffers.slice(piece.begin, piece.count), piece.first, &input->state, &result->update);
    }
    stamp(&result->clock.sharing);
    if (sharded_) {
      complete(weights_.masters());
      weights_.refresh_copy();
    }
  }

  dist::Traffic planned_traffic(const IdCounts& ids) const override {
    dist::Traffic total = reducer_.planned_traffic((ids.source + ids.target) * model_.config().width) +
                          communicator_.planned_all_reduce(sizeof(StepSums) / sizeof(double), DType::f64);
    const std::vector<dist::Bucket> buckets = reducer_.plan().all();
    for (const dist::Bucket& bucket : sharded_ ? buckets : std::vector<dist::Bucket>{}) {
      total = total + communicator_.planned_all_gather(bucket.count, DType::f32);
    }
    return scatters() ? total + communicator_.planned_all_reduce(
                                    static_cast<int64_t>(buckets.size()) * communicator_.size(), DType::f64)
                      : total;
  }

  // ---- gathers whole buffers from the ranks' shards

  void complete(const View& flat) override {
    if (!sharded_ || flat.empty()) {
      return;
    }
    const View padded = weights_.padded(flat);
    std::vector<dist::Handle> handles;
    if (whole_parameters_) {  // each rank's parameters are contiguous
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

  std::vector<dist::ShardPieces> shards(dist::Communicator& host) const override {
    if (!sharded_) {
      return {};
    }
    std::vector<double> numbers(static_cast<size_t>(host.size()));  // each rank's shard number
    numbers[static_cast<size_t>(host.rank())] = static_cast<double>(own_number());
    host.all_reduce(host_view(numbers.data(), 1, host.size()));
    std::vector<dist::ShardPieces> by_rank;
    for (const double number : numbers) {
      by_rank.push_back(shards_[static_cast<size_t>(number)]);
    }
    return by_rank;
  }

 private:
  bool wide() const { return wire_ == DType::f64; }
  // Whether each rank gets only the sums of its own shard.
  bool scatters() const { return sharded_ && !whole_parameters_; }
  size_t own_number() const {  // number of this rank's shard
    return static_cast<size_t>(whole_parameters_ ? communicator_.rank() : communicator_.shard_number());
  }
  std::vector<dist::Bucket> parameter_ranges() const {
    std::vector<dist::Bucket> ranges;
    for (const Parameter& parameter : model_.parameters().all()) {
      ranges.push_back({parameter.offset, parameter.size()});
    }
    return ranges;
  }

  View sums() const { return weights_.padded(weights_.gradients()); }                                // [1, padded]
  View values() const { return wide() ? wide_values_.view(DType::f64, 1, sums().size()) : sums(); }  // this rank's

  // ---- gradients of the looked-up tokens

  struct Rows {  // [count, D]
    Buffer values, sums;
    int64_t count = 0;
  };
  const Rows& rows(Side side) const { return rows_[side == Side::source ? 0 : 1]; }
  View row_sums(Side side) const { return rows(side).sums.view(DType::f32, rows(side).count, model_.config().width); }
  View row_values(Side side) const {
    return wide() ? rows(side).values.view(DType::f64, rows(side).count, model_.config().width) : row_sums(side);
  }
  // Elements of the target's and the source's rows, if memory must be allocated before the first step.
  std::vector<int64_t> elements_in_advance() const {
    const IdCounts ids = ids_in_advance(backend_, model_.config());
    return {ids.target * model_.config().width, ids.source * model_.config().width};
  }
  void reserve(const IdCounts& ids) {
    for (const auto& [own, count] : {std::pair(&rows_[0], ids.source), std::pair(&rows_[1], ids.target)}) {
      own->count = count;
      const auto elements = static_cast<size_t>(count * model_.config().width);
      if (own->sums.bytes() < elements * sizeof(float)) {
        own->sums = backend_.allocate(elements * sizeof(float));
        own->values = wide() ? backend_.allocate(elements * sizeof(double)) : Buffer();
      }
    }
  }

  // ---- after the backward pass

  // Waits until the sums over all ranks are complete.
  void join(StepSums* step_sums) {
    static_assert(sizeof(StepSums) % sizeof(double) == 0);
    dist::Handle sums_there = communicator_.start_all_reduce(
        make_view(step_sums, DType::f64, 1, sizeof(StepSums) / sizeof(double), weights_.masters().memory));
    reducer_.finish();
    sums_there.wait();
  }

  void add_looked_up_rows(const StepIds& ids) {
    const auto table = [this](Side side) { return model_.parameters().in(weights_.gradients(), model_.table(side)); };
    for (const dist::Bucket& looked_up : wide() ? reducer_.plan().rest : std::vector<dist::Bucket>{}) {
      backend_.fill_zero(sums().slice_cols(looked_up.begin, looked_up.count));
    }
    backend_.run(backend::op::AddRows{.table = table(Side::target), .ids = ids.target, .rows = row_sums(Side::target)});
    backend_.run(backend::op::AddRows{.table = table(Side::source), .ids = ids.source, .rows = row_sums(Side::source)});
  }

  // f64 [1, ranks * buckets], ordered by shard, then by bucket.
  View sum_squares() {
    const std::vector<dist::ShardPieces> shards = dist::equal_shards(reducer_.plan().all(), communicator_.size());
    const auto buckets = static_cast<int64_t>(shards[0].size());
    const View squares = squares_.view(DType::f64, 1, buckets * communicator_.size());
    if (scatters()) {
      backend_.fill_zero(squares);
    }
    for (int number = 0; number < communicator_.size(); ++number) {
      for (int64_t i = 0; i < buckets && (!scatters() || number == communicator_.shard_number()); ++i) {
        const dist::ShardPiece& piece = shards[static_cast<size_t>(number)][static_cast<size_t>(i)];
        backend_.run(backend::op::SumOfSquares{.sum = squares.slice_cols(number * buckets + i, 1),
                                               .x = sums().slice_cols(piece.begin, piece.count)});
      }
    }
    if (scatters()) {
      communicator_.all_reduce(squares);
    }
    return squares;
  }

  backend::Backend& backend_;
  const model::Transformer& model_;
  ModelState& weights_;
  dist::Communicator& communicator_;
  const DType wire_;
  const bool sharded_, whole_parameters_;
  Buffer wide_values_;  // f64 [padded], if gradients are sent as f64
  dist::Reducer reducer_;
  std::vector<dist::ShardPieces> shards_;  // by shard number; empty if the optimizer is not sharded
  dist::ShardPieces own_;
  Buffer squares_;  // f64 [ranks, buckets]: sum of squares of each shard of each bucket
  std::array<Rows, 2> rows_;
};

}  // namespace

DType wire_type(const DistConfig& config, const backend::Backend& backend, DType compute) {
  using Wire = DistConfig::Wire;
  const bool gpu = backend.stream().handle != nullptr;
  require(config.wire != Wire::f64 || !gpu,
          "dist.wire = \"f64\" is for CPUs: use \"auto\", \"f32\" or \"bf16\" on GPUs");
  const bool automatic_f64 = compute == DType::f32 && !gpu;
  return config.wire == Wire::f64 || (config.wire == Wire::automatic && automatic_f64) ? DType::f64
         : config.wire == Wire::bf16                                                   ? DType::bf16
                                                                                       : DType::f32;
}

std::unique_ptr<GradientUpdate> make_gradient_update(backend::Backend& backend, const model::Transformer& model,
                                                     ModelState& weights, dist::Communicator& communicator,
                                                     const TrainConfig& config, bool whole_parameters) {
  const DType wire = wire_type(config.dist, backend, weights.weights().compute.dtype);
  if (communicator.size() == 1 && wire != DType::f64) {
    return std::make_unique<OwnUpdate>(backend, weights);
  }
  return std::make_unique<SummedUpdate>(backend, model, weights, communicator, config.dist, wire, whole_parameters);
}

}  // namespace tandem::train
