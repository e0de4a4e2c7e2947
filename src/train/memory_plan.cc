#include "train/memory_plan.h"

#include <algorithm>

#include "core/error.h"
#include "data/capacity.h"
#include "train/stepper.h"
#include "train/team_update.h"

namespace tandem {

namespace {

constexpr double kUsable = 0.92;  // of the free memory: the rest is for decoding at validations and the driver
constexpr int64_t kMostRounds = 4096;
constexpr int64_t kPartTokens = 256;  // of both sides together
constexpr int64_t kRoundSlack = 64;   // tokens: a round ends where the next sentence would not fit

double gigabytes(size_t bytes) { return static_cast<double>(bytes) / 1e9; }

// At most `tokens` a side in one round; 0 = a whole step.
MemoryPlan plan_for(const Backend& backend, DType compute, const Corpus& corpus, const TrainConfig& config,
                    int64_t tokens, int ranks) {
  MemoryPlan plan;
  plan.batch = config.batch;
  for (const RoundCapacity& capacity : round_capacities(corpus, config.batch, tokens)) {
    plan.layouts.emplace_back(capacity, config.model.max_length, config.model, ranks > 1);
  }
  const BatchLayout& largest = plan.layouts.back();
  plan.batch.round = largest.capacity();
  plan.arena_bytes = planned_arena_bytes(backend, config.model, compute, largest);
  plan.description = fmt::format("a round holds {} + {} tokens in {} sentences and takes {:.2f} GB of {:.2f} GB free",
                                 plan.batch.round.source, plan.batch.round.target, plan.batch.round.pairs,
                                 gigabytes(plan.arena_bytes), gigabytes(backend.memory_sizes().free));
  return plan;
}

}  // namespace

MemoryPlan plan_memory(const Backend& backend, DType compute, const Corpus& corpus, const TrainConfig& config,
                       int ranks) {
  if (!backend.fixed_shape()) {
    MemoryPlan plan;
    plan.batch = config.batch;
    plan.batch.round = {config.micro_batch, config.micro_batch, 0};
    plan.batch.part_tokens = wire_type(config.dist, backend, compute) == DType::f64 ? kPartTokens : 0;
    return plan;
  }
  const auto usable = static_cast<size_t>(kUsable * static_cast<double>(backend.memory_sizes().free));
  // A rank's part of a step, which is cut where sentences end and by both sides together.
  const int64_t part = ranks == 1 ? 0 : config.batch.tokens / ranks * 51 / 50 + config.model.max_length;
  const int64_t most =
      config.micro_batch > 0 && part > 0 ? std::min(config.micro_batch, part) : std::max(config.micro_batch, part);
  MemoryPlan plan = plan_for(backend, compute, corpus, config, most, ranks);
  if (config.micro_batch > 0) {
    require(plan.arena_bytes <= usable,
            "batch.micro_batch = {} does not fit: a round takes {:.2f} GB and {:.2f} GB can be used; lower it, or let "
            "batch.micro_batch = \"fit\" choose",
            config.micro_batch, gigabytes(plan.arena_bytes), gigabytes(usable));
    return plan;
  }
  const int64_t whole = std::max(plan.batch.round.source, plan.batch.round.target);
  for (int64_t rounds = 2; plan.arena_bytes > usable && rounds <= kMostRounds; ++rounds) {
    const int64_t tokens = whole / rounds + kRoundSlack;
    if (tokens < config.model.max_length) {
      break;
    }
    plan = plan_for(backend, compute, corpus, config, tokens, ranks);
  }
  require(plan.arena_bytes <= usable,
          "not even a round of one sentence fits: it takes {:.2f} GB and {:.2f} GB can be used; lower "
          "model.max_length or choose a smaller model",
          gigabytes(plan.arena_bytes), gigabytes(usable));
  return plan;
}

}  // namespace tandem
