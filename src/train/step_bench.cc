#include "train/step_bench.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "train/host_copy.h"
#include "train/memory_plan.h"
#include "train/product_rate.h"
#include "train/setup.h"
#include "train/step_flops.h"
#include "train/stepper.h"

namespace tandem {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

template <class Op>
double seconds_of(Backend& backend, int repeats, const Op& op) {
  op();
  backend.wait();
  const auto begin = Clock::now();
  for (int i = 0; i < repeats; ++i) {
    op();
  }
  backend.wait();
  return seconds_since(begin) / repeats;
}

Ceilings measure_ceilings(Backend& backend, DType compute) {
  constexpr int kRepeats = 20;
  Ceilings ceilings;
  ceilings.product_flops = measure_product_rate(backend, compute, kRepeats);
  const int64_t n = backend.fixed_shape() ? 8192 : 1024;
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

// One step, op by op, each timed by itself.
std::vector<OpProfile> profile_step(Backend& backend, ModelState& weights, const TrainConfig& config,
                                    const MemoryPlan& plan, const TrainStep& step, const StepState& state) {
  ProfiledBackend profiled(backend);
  const Transformer model(profiled, config.model);
  Adam adam(profiled, model.parameters().flat_size(), {config.optimizer.adam});
  Stepper stepper(profiled, model, weights, adam, config.label_smoothing, plan.layouts);
  stepper.reserve(plan.arena_bytes);
  stepper.give(step, state, false);
  stepper.take();
  return profiled.profile();
}

}  // namespace

StepBench measure_step(const Corpus& corpus, const TrainConfig& config, const StepBenchOptions& options) {
  const auto backend = make_backend(config.device, config.threads);
  const size_t free_before = backend->memory_sizes().free;
  const DType compute = compute_type(config.precision, *backend);
  if (!options.algorithms.empty()) {
    backend->use_algorithms(options.algorithms, "the table of algorithms");
  }
  backend->set_tuning(options.tune);
  const Transformer model(*backend, config.model);
  ModelState weights(*backend, model.parameters(), compute, false);
  initialize(HostCopy(*backend, weights.masters(), HostCopy::write).view(), model.parameters(), config.seed);
  weights.refresh_copy();
  Adam adam(*backend, model.parameters().flat_size(), {config.optimizer.adam});
  const MemoryPlan plan = plan_memory(*backend, compute, corpus, config);
  Batcher batcher(corpus, plan.batch);
  StepBench bench;
  TrainStep last;
  StepState state;
  {
    Stepper stepper(*backend, model, weights, adam, config.label_smoothing, plan.layouts);
    stepper.reserve(plan.arena_bytes);
    std::vector<TrainStep> steps;
    for (int64_t i = 0; i < options.warm_up + options.steps; ++i) {
      steps.push_back(batcher.next());
    }
    double capacity = 0, used = 0;
    Clock::time_point begin;
    for (size_t i = 0; i < steps.size(); ++i) {
      const TrainStep& step = steps[i];
      const bool timed = static_cast<int64_t>(i) >= options.warm_up;
      if (static_cast<int64_t>(i) == options.warm_up) {
        backend->wait();
        begin = Clock::now();
      }
      state = {.seed = config.seed,
               .step = static_cast<uint32_t>(i),
               .loss_scale = 1.0F / static_cast<float>(step.target_tokens),
               .learning_rate = 1e-4F};
      stepper.give(step, state, i > 0);  // the first, op by op, chooses the algorithms
      while (stepper.under_way() > 3) {
        require(stepper.take().update.finite != 0, "the gradient is not finite");
      }
      if (timed) {
        bench.source_tokens += static_cast<double>(step.source_tokens);
        bench.target_tokens += static_cast<double>(step.target_tokens);
        bench.rounds += static_cast<double>(step.rounds.size());
        bench.flops += step_flops(config.model, step);
        used += static_cast<double>(step.source_tokens + step.target_tokens);
        capacity += static_cast<double>(step.rounds.size()) *
                    static_cast<double>(plan.batch.round.source + plan.batch.round.target);
        note_lengths(bench.lengths, step);
      }
    }
    backend->wait();
    const auto count = static_cast<double>(options.steps);
    bench.seconds = seconds_since(begin) / count;
    while (stepper.under_way() > 0) {
      require(stepper.take().update.finite != 0, "the gradient is not finite");
    }
    bench.source_tokens /= count;
    bench.target_tokens /= count;
    bench.rounds /= count;
    bench.flops /= count;
    bench.dead_rows = plan.layouts.empty() ? 0 : 1 - used / capacity;
    bench.memory = free_before - std::min(free_before, backend->memory_sizes().free);
    last = steps.back();
  }
  bench.device = backend->description();
  bench.parameters = model.parameters().count();
  bench.algorithms = backend->algorithms();
  backend->set_tuning(false);
  if (options.profile) {
    bench.profile = profile_step(*backend, weights, config, plan, last, state);
  }
  bench.ceilings = measure_ceilings(*backend, compute);
  return bench;
}

}  // namespace tandem
