#include "train/memory_plan.h"

#include <algorithm>

#include "backend/planning.h"
#include "core/error.h"
#include "core/human.h"
#include "data/batcher.h"
#include "train/gradient_update.h"
#include "train/validator.h"

namespace tandem::train {

namespace {

// Reserve for decoding in validations and for the driver: a share of the free memory, more on small GPUs, up to a
// quarter; at least what a validation's loss needs, plus the driver's memory for kernels and graphs.
constexpr double kReserve = 0.08, kSmallestReserve = 1e9, kMostReserve = 0.25;
constexpr double kBatches = 16e6;                      // bytes of batches under way
constexpr double kDriver = 256e6, kMostDriver = 0.05;  // bytes, and at most this share of the free memory
constexpr int64_t kMostMicroBatches = 4096;
constexpr int64_t kPartTokens = 256;  // both sides together
constexpr int64_t kSlack = 64;        // tokens: a micro-batch ends before the next sentence if that would not fit

std::string readable(size_t bytes) { return human_bytes(static_cast<double>(bytes)); }

int64_t rows_of(const MemoryPlan& plan) { return std::max(plan.batch.capacity.source, plan.batch.capacity.target); }

// One rank's plan.
struct Planner {
  const backend::Backend& backend;
  DType compute;
  const data::Corpus& corpus;
  const TrainConfig& config;
  int ranks;

  size_t usable_bytes() const {
    const auto free = static_cast<double>(backend.memory_sizes().free);
    const auto validation = static_cast<double>(planned_evaluation_bytes(backend, config.model, compute));
    const double reserve = std::max({kReserve * free, std::min(kSmallestReserve, kMostReserve * free),
                                     validation + kBatches + std::min(kDriver, kMostDriver * free)});
    return static_cast<size_t>(std::max(0.0, free - reserve));
  }

  // micro_batches: number in a step; 0 = unknown.
  std::string describe(const MemoryPlan& plan, int64_t micro_batches) const {
    const data::MicroBatchCapacity& capacity = plan.batch.capacity;
    return fmt::format("a step is {} of at most {} + {} tokens in {} sentences; a micro-batch takes {} of {} free",
                       micro_batches > 1    ? fmt::format("{} micro-batches", micro_batches)
                       : micro_batches == 1 ? "one micro-batch"
                                            : "micro-batches",
                       grouped(capacity.source), grouped(capacity.target), grouped(capacity.pairs),
                       readable(plan.arena_bytes), readable(backend.memory_sizes().free));
  }

  // Plan for at most `tokens` of each side in a micro-batch; 0 = all of the rank's share of a step.
  MemoryPlan plan_for(int64_t tokens) const {
    MemoryPlan plan;
    plan.batch = config.batch;
    for (const data::MicroBatchCapacity& capacity : data::micro_batch_capacities(corpus, config.batch, tokens, ranks)) {
      plan.layouts.emplace_back(capacity, config.model.max_length, config.model, ranks > 1);
    }
    const BatchLayout& largest = plan.layouts.back();
    plan.batch.capacity = largest.capacity();
    plan.arena_bytes = planned_arena_bytes(backend, config.model, compute, largest);
    return plan;
  }

  MemoryPlan plan_memory(const data::MicroBatchCapacity& before) const {
    if (!has_fixed_capacities(backend)) {
      MemoryPlan plan;
      plan.batch = config.batch;
      plan.batch.capacity = {config.micro_batch, config.micro_batch, 0};
      plan.batch.part_tokens = wire_type(config.dist, backend, compute) == DType::f64 ? kPartTokens : 0;
      return plan;
    }
    const size_t usable = usable_bytes();
    const int64_t most_rows = backend.traits().most_rows(config.model.width);
    MemoryPlan plan = plan_for(config.micro_batch);
    if (config.micro_batch > 0) {
      require(plan.arena_bytes <= usable,
              "batch.micro_batch = {} does not fit: a micro-batch takes {} and {} can be used; lower it, or let "
              "batch.micro_batch = \"fit\" choose",
              config.micro_batch, readable(plan.arena_bytes), readable(usable));
      require(rows_of(plan) <= most_rows,
              "batch.micro_batch = {} is too large: a micro-batch would have {} rows, and at width {} at most {} are "
              "possible",
              config.micro_batch, rows_of(plan), config.model.width, most_rows);
      const int64_t together =
          ranks * std::min(config.micro_batch, rows_of(plan));  // tokens of one micro-batch of every rank
      const bool by_tokens = config.batch.sentences == 0;
      plan.description = describe(plan, by_tokens ? (config.batch.tokens + together - 1) / together : 0);
      return plan;
    }
    const auto fits = [&] { return plan.arena_bytes <= usable && rows_of(plan) <= most_rows; };
    const auto is_before = [&] {
      return plan.batch.capacity.source == before.source && plan.batch.capacity.target == before.target;
    };
    const int64_t whole = rows_of(plan), rows_before = std::max(before.source, before.target);
    int64_t fewest = 0;  // smallest number of micro-batches that fit
    MemoryPlan chosen;
    for (int64_t micro_batches = 1; micro_batches <= kMostMicroBatches; ++micro_batches) {
      if (micro_batches > 1) {
        const int64_t tokens = whole / micro_batches + kSlack;
        if (tokens < config.model.max_length) {
          break;
        }
        plan = plan_for(tokens);
      }
      if (fits() && (fewest == 0 || is_before())) {
        chosen = plan;
        chosen.description = describe(plan, micro_batches);
        chosen.description +=
            fewest == 0 ? "" : fmt::format("; {} would fit, but the run has micro-batches of this size", fewest);
        fewest = fewest == 0 ? micro_batches : fewest;
      }
      if (fewest > 0 && (is_before() || rows_of(plan) < rows_before || rows_before == 0)) {
        break;
      }
    }
    require(fewest > 0,
            "not even a micro-batch of one sentence fits: it takes {} and {} can be used; lower "
            "model.max_length or choose a smaller model",
            readable(plan.arena_bytes), readable(usable));
    return chosen;
  }
};

}  // namespace

size_t plan_pass(const backend::Backend& backend, const model::ModelConfig& config, DType compute,
                 const BatchLayout& layout, const std::function<void(const PlannedPass&)>& pass) {
  backend::PlanningBackend planning(backend);
  const model::Transformer model(planning, config);
  const ModelState weights(planning, model.parameters(), compute, false);
  Arena arena([&planning](size_t bytes) { return planning.allocate(bytes); });
  arena.reserve(size_t{1} << 46);  // one chunk, so that the peak is the sum of all that is taken
  backend::LossTotals totals;
  StepInput input;
  pass({model, weights, layout.batch(&input, Memory::device), &totals, arena});
  return arena.peak_bytes();
}

size_t planned_arena_bytes(const backend::Backend& backend, const model::ModelConfig& config, DType compute,
                           const BatchLayout& layout) {
  return plan_pass(backend, config, compute, layout, [](const PlannedPass& pass) {
    pass.model.train(pass.weights.weights(), pass.weights.gradients(), pass.batch, 0, pass.totals, pass.arena);
  });
}

MemoryPlan plan_memory(const backend::Backend& backend, DType compute, const data::Corpus& corpus,
                       const TrainConfig& config, int ranks, const data::MicroBatchCapacity& before,
                       dist::Communicator& host) {
  const auto most = [&host](int64_t value) { return static_cast<int64_t>(largest(host, static_cast<double>(value))); };
  const data::MicroBatchCapacity wanted{most(before.source), most(before.target), 0};
  const Planner planner{backend, compute, corpus, config, ranks};
  MemoryPlan plan = planner.plan_memory(wanted);
  const data::MicroBatchCapacity own =
      plan.layouts.empty() ? data::MicroBatchCapacity{INT32_MAX, INT32_MAX, 0} : plan.batch.capacity;
  const data::MicroBatchCapacity smallest{-most(-own.source), -most(-own.target), 0};
  if (smallest.source == own.source && smallest.target == own.target) {
    return plan;
  }
  return planner.plan_memory(smallest);
}

}  // namespace tandem::train
