#include "train/step_bench.h"

#include <algorithm>
#include <optional>
#include <span>

#include "core/error.h"
#include "core/stopwatch.h"
#include "train/flops.h"
#include "train/learner.h"

namespace tandem::train {

namespace {

void note_lengths(std::vector<std::string>& lengths, const data::TrainStep& step) {
  for (const data::HostBatch& micro_batch : step.micro_batches) {
    for (size_t i = 0; i + 1 < micro_batch.source.starts.size(); ++i) {
      lengths.push_back(fmt::format("{} {}", micro_batch.source.starts[i + 1] - micro_batch.source.starts[i],
                                    micro_batch.target.starts[i + 1] - micro_batch.target.starts[i]));
    }
  }
}

constexpr double kLearningRate = 1e-4;

void take_all_but(size_t under_way, Learner& learner) {
  while (learner.under_way() > under_way) {
    require(learner.take().update.finite != 0, "the gradient is not finite");
  }
}

void give(Learner& learner, const std::vector<data::TrainStep>& steps, size_t number, bool recorded) {
  const StepInput input = learner.input_of(steps[number], static_cast<int64_t>(number), kLearningRate);
  learner.give(steps[number], input, recorded);
}

// Gives steps op by op, so that the first product of every shape can be timed.
void tune(Learner& learner, const std::vector<data::TrainStep>& steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    give(learner, steps, i, false);
    take_all_but(0, learner);
  }
}

// Gives all steps; returns seconds per step, without the first `warm_up`.
double time_steps(backend::Backend& backend, Learner& learner, const std::vector<data::TrainStep>& steps,
                  size_t warm_up) {
  Stopwatch watch;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i == warm_up) {
      backend.wait();
      watch.lap();
    }
    give(learner, steps, i, true);
    take_all_but(learner.usual_under_way(), learner);
  }
  backend.wait();
  const double seconds = watch.seconds();
  take_all_but(0, learner);
  return seconds / static_cast<double>(steps.size() - warm_up);
}

// Fills in the means of the timed steps.
void describe(StepBench& bench, std::span<const data::TrainStep> steps, const Learner& learner) {
  const auto count = static_cast<double>(steps.size());
  double rows = 0, tokens = 0;
  for (const data::TrainStep& step : steps) {
    rows += static_cast<double>(learner.rows_of(step));
    tokens += static_cast<double>(tokens_of(step));
    bench.source_tokens += static_cast<double>(step.source_tokens) / count;
    bench.target_tokens += static_cast<double>(step.target_tokens) / count;
    bench.micro_batches += static_cast<double>(step.micro_batches.size()) / count;
    bench.flops += step_flops(learner.model().config(), step) / count;
    note_lengths(bench.lengths, step);
  }
  bench.dead_share = rows > 0 ? 1 - tokens / rows : 0;
}

// Profiles the last step, op by op.
std::vector<backend::OpProfile> profile_step(backend::Backend& backend, const data::Corpus& corpus,
                                             const TrainConfig& config, const LearnerRanks& ranks,
                                             const MemoryPlan& plan, const std::vector<data::TrainStep>& steps) {
  backend::ProfiledBackend profiled(backend);
  Learner learner(profiled, config, corpus, ranks, {.plan = plan});
  learner.begin();
  profiled.forget();  // setup is not part of a step
  give(learner, steps, steps.size() - 1, false);
  learner.take();
  return profiled.profile();
}

}  // namespace

StepBench measure_step(const data::Corpus& corpus, const TrainConfig& config, const StepBenchOptions& options) {
  const auto backend = backend::make_backend(config.device, config.threads);
  require(!options.tune || backend->stream().handle != nullptr,
          "nothing can be tuned on {}: only a GPU has algorithms to choose from", backend->description());
  const backend::Backend::MemorySizes before = backend->memory_sizes();
  if (!options.algorithms.empty()) {
    backend->use_algorithms(options.algorithms, "the table of algorithms");
  }
  const auto alone = dist::make_single_communicator(), others = dist::make_silent_communicator(options.ranks);
  const LearnerRanks ranks{*alone, *others};
  std::optional<Learner> learner(std::in_place, *backend, config, corpus, ranks);
  learner->begin();
  std::vector<data::TrainStep> steps;
  for (int64_t i = 0; i < options.warm_up + options.steps; ++i) {
    steps.push_back(learner->batcher().next());
  }
  const auto warm_up = static_cast<size_t>(options.warm_up);
  if (options.tune) {
    backend->set_tuning(true);
    tune(*learner, steps);
    backend->set_tuning(false);
  }
  StepBench bench;
  const MemoryPlan plan = learner->plan();
  if (plan.layouts.size() > 1) {  // record every size before the timed pass
    time_steps(*backend, *learner, steps, warm_up);
  }
  bench.seconds = time_steps(*backend, *learner, steps, warm_up);
  bench.memory = before.own + before.free - std::min(before.free, backend->memory_sizes().free);
  describe(bench, std::span(steps).subspan(warm_up), *learner);
  bench.too_long = learner->batcher().too_long();
  bench.longest = config.model.max_length;
  bench.device = backend->description();
  bench.parameters = learner->model().parameters().count();
  bench.algorithms = backend->algorithms();
  const DType compute = learner->compute();
  learner.reset();  // the profile's learner needs as much memory
  if (options.profile) {
    bench.profile = profile_step(*backend, corpus, config, ranks, plan, steps);
  }
  constexpr int kRepeats = 20;
  bench.ceilings = {.product_flops = measure_product_rate(*backend, compute, kRepeats),
                    .copy_bytes = measure_copy_rate(*backend, kRepeats)};
  return bench;
}

}  // namespace tandem::train
