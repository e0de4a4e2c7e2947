#include "train/step_bench.h"

#include <algorithm>
#include <optional>
#include <span>

#include "core/error.h"
#include "core/stopwatch.h"
#include "train/host_copy.h"
#include "train/memory_plan.h"
#include "train/product_rate.h"
#include "train/setup.h"
#include "train/step_flops.h"
#include "train/stepper.h"
#include "train/summed_update.h"

namespace tandem {

namespace {

constexpr size_t kStepsUnderWay = 3;

template <class Op>
double seconds_of(Backend& backend, int repeats, const Op& op) {
  op();
  backend.wait();
  const Stopwatch watch;
  for (int i = 0; i < repeats; ++i) {
    op();
  }
  backend.wait();
  return watch.seconds() / repeats;
}

Ceilings measure_ceilings(Backend& backend, DType compute) {
  constexpr int kRepeats = 20;
  Ceilings ceilings;
  ceilings.product_flops = measure_product_rate(backend, compute, kRepeats);
  const int64_t n = measured_size(backend, 8);
  Arena arena([&backend](size_t bytes) { return backend.allocate(bytes); });
  const View from = arena.take(DType::f32, n, n), to = arena.take(DType::f32, n, n);
  fill_random(backend, from, 1);
  ceilings.copy_bytes =
      8.0 * static_cast<double>(n * n) / seconds_of(backend, kRepeats, [&] { backend.copy(to, from); });
  return ceilings;
}

void note_lengths(std::vector<std::string>& lengths, const TrainStep& step) {
  for (const HostBatch& round : step.rounds) {
    for (size_t i = 0; i + 1 < round.source.starts.size(); ++i) {
      lengths.push_back(fmt::format("{} {}", round.source.starts[i + 1] - round.source.starts[i],
                                    round.target.starts[i + 1] - round.target.starts[i]));
    }
  }
}

StepState state_of(const TrainStep& step, size_t number, uint64_t seed) {
  return {.seed = seed,
          .step = static_cast<uint32_t>(number),
          .loss_scale = 1.0F / static_cast<float>(step.target_tokens),
          .learning_rate = 1e-4F};
}

void take_all_but(size_t under_way, Stepper& stepper) {
  while (stepper.under_way() > under_way) {
    require(stepper.take().update.finite != 0, "the gradient is not finite");
  }
}

// Op by op, so that the first product of every shape can be timed.
void tune(Stepper& stepper, const std::vector<TrainStep>& steps, uint64_t seed) {
  for (size_t i = 0; i < steps.size(); ++i) {
    stepper.give(steps[i], state_of(steps[i], i, seed), false);
    take_all_but(0, stepper);
  }
}

// Gives all steps; seconds of one, without the first `warm_up`.
double time_steps(Backend& backend, Stepper& stepper, const std::vector<TrainStep>& steps, size_t warm_up,
                  uint64_t seed) {
  Stopwatch watch;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i == warm_up) {
      backend.wait();
      watch.lap();
    }
    stepper.give(steps[i], state_of(steps[i], i, seed));
    take_all_but(kStepsUnderWay, stepper);
  }
  backend.wait();
  const double seconds = watch.seconds();
  take_all_but(0, stepper);
  return seconds / static_cast<double>(steps.size() - warm_up);
}

// Means of the timed steps.
void describe(StepBench& bench, std::span<const TrainStep> steps, const Stepper& stepper, const ModelConfig& model) {
  const auto count = static_cast<double>(steps.size());
  double rows = 0, tokens = 0;
  for (const TrainStep& step : steps) {
    rows += static_cast<double>(stepper.rows_of(step));
    tokens += static_cast<double>(tokens_of(step));
    bench.source_tokens += static_cast<double>(step.source_tokens) / count;
    bench.target_tokens += static_cast<double>(step.target_tokens) / count;
    bench.rounds += static_cast<double>(step.rounds.size()) / count;
    bench.flops += step_flops(model, step) / count;
    note_lengths(bench.lengths, step);
  }
  bench.dead_share = rows > 0 ? 1 - tokens / rows : 0;
}

// One step, op by op, each timed by itself.
std::vector<OpProfile> profile_step(Backend& backend, ModelState& weights, const TrainConfig& config,
                                    const MemoryPlan& plan, const TrainStep& step, const StepState& state) {
  ProfiledBackend profiled(backend);
  const Transformer model(profiled, config.model);
  Adam adam(profiled, model.parameters().flat_size(), {config.optimizer.adam});
  const auto alone = make_single_communicator();
  auto sums = make_team_update(profiled, model, weights, *alone, config.dist);
  Stepper stepper(profiled, model, weights, adam, config.label_smoothing, plan.layouts, sums ? &*sums : nullptr);
  stepper.reserve(plan.arena_bytes);
  profiled.forget();  // setting up is not part of a step
  stepper.give(step, state, false);
  stepper.take();
  return profiled.profile();
}

}  // namespace

StepBench measure_step(const Corpus& corpus, const TrainConfig& config, const StepBenchOptions& options) {
  const auto backend = make_backend(config.device, config.threads);
  require(!options.tune || backend->traits().replays,
          "nothing can be tuned on {}: only a GPU has algorithms to choose from", backend->description());
  const Backend::MemorySizes before = backend->memory_sizes();
  const DType compute = compute_type(config.precision, *backend);
  if (!options.algorithms.empty()) {
    backend->use_algorithms(options.algorithms, "the table of algorithms");
  }
  const Transformer model(*backend, config.model);
  ModelState weights(*backend, model.parameters(), compute, false, TeamUpdate::unit(1));
  initialize(HostCopy(*backend, weights.masters(), HostCopy::write).view(), model.parameters(), config.seed);
  weights.refresh_copy();
  std::optional<Adam> adam(std::in_place, *backend, model.parameters().flat_size(),
                           UpdateSettings{config.optimizer.adam});
  const MemoryPlan plan = plan_memory(*backend, compute, corpus, config, options.ranks);
  Batcher batcher(corpus, plan.batch, 0, options.ranks);
  std::vector<TrainStep> steps;
  for (int64_t i = 0; i < options.warm_up + options.steps; ++i) {
    steps.push_back(batcher.next());
  }
  StepBench bench;
  const auto warm_up = static_cast<size_t>(options.warm_up);
  {
    const auto alone = make_single_communicator();
    auto sums = make_team_update(*backend, model, weights, *alone, config.dist);
    Stepper stepper(*backend, model, weights, *adam, config.label_smoothing, plan.layouts, sums ? &*sums : nullptr);
    stepper.reserve(plan.arena_bytes);
    if (options.tune) {
      backend->set_tuning(true);
      tune(stepper, steps, config.seed);
      backend->set_tuning(false);
    }
    if (plan.layouts.size() > 1) {  // so that every size is recorded before its time counts
      time_steps(*backend, stepper, steps, warm_up, config.seed);
    }
    bench.seconds = time_steps(*backend, stepper, steps, warm_up, config.seed);
    bench.memory = before.own + before.free - std::min(before.free, backend->memory_sizes().free);
    describe(bench, std::span(steps).subspan(warm_up), stepper, config.model);
  }
  bench.too_long = batcher.too_long();
  bench.longest = config.model.max_length;
  bench.device = backend->description();
  bench.parameters = model.parameters().count();
  bench.algorithms = backend->algorithms();
  adam.reset();  // the profile's needs as much
  if (options.profile) {
    bench.profile = profile_step(*backend, weights, config, plan, steps.back(),
                                 state_of(steps.back(), steps.size() - 1, config.seed));
  }
  bench.ceilings = measure_ceilings(*backend, compute);
  return bench;
}

}  // namespace tandem
