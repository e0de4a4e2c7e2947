#include "preflight/measure.h"

#include <algorithm>
#include <filesystem>

#include "backend/cuda_device.h"
#include "core/log.h"
#include "core/stopwatch.h"
#include "observe/probes/host_probes.h"
#include "preflight/step_trial.h"
#include "train/product_rate.h"

namespace tandem::preflight {

namespace {

namespace fs = std::filesystem;

constexpr double kLinkSeconds = 14;  // all pairs together
constexpr double kSumSeconds = 2;
constexpr double kStepSeconds = 7;
constexpr double kBusySeconds = 4;
constexpr int kMostSteps = 60;
constexpr double kMessageSeconds = 0.1;  // of one sum beside computing, about

// The run directory, or what is there of the path to it.
fs::path existing_part(const std::string& run) {
  fs::path path = fs::absolute(run.empty() ? "." : run);
  std::error_code none;
  while (!fs::exists(path, none) && path.has_relative_path()) {
    path = path.parent_path();
  }
  return path;
}

double sm_clock(const backend::Backend& backend) {
  const DeviceStream stream = backend.stream();
  if (stream.handle == nullptr) {
    return kNotMeasured;
  }
  observe::Record sample{.kind = "probe"};
  if (const observe::Probe probe = observe::make_gpu_probe(backend::gpu_bus_id(stream.device))) {
    probe(sample, 0);
  }
  return sample.number("gpu_sm_clock_mhz").value_or(kNotMeasured);
}

RankMeasurements look_around(dist::ProcessGroup& group, backend::Backend& backend, const train::TrainConfig& config) {
  const dist::RankInfo& own = group.ranks()[static_cast<size_t>(group.rank())];
  RankMeasurements found;
  found.rank = group.rank();
  found.node = group.node();
  found.host = own.host;
  found.address = own.address;
  found.interface = own.interface;
  found.device = backend.description();
  found.gpus = backend::gpu_count();
  found.memory_free = static_cast<double>(backend.memory_sizes().free);
  found.memory_total = static_cast<double>(backend.memory_sizes().total);
  const fs::path disk = existing_part(config.run);
  found.disk = disk.string();
  found.disk_free = static_cast<double>(fs::space(disk).available);
  return found;
}

// As training does: all ranks begin a step together.
void time_steps(StepTrial& trial, dist::Communicator& control, backend::Backend& backend,
                std::vector<StepTimeline>& steps) {
  const int warm_up = backend.traits().replays ? 4 : 2;
  for (int i = 0; i < warm_up; ++i) {
    control.barrier();
    trial.run_step();
  }
  const Stopwatch watch;
  for (double more = 1; more > 0;) {
    control.barrier();
    steps.push_back(trial.run_step());
    const auto count = static_cast<int>(steps.size());
    more = count < 3 || (count < kMostSteps && watch.seconds() < kStepSeconds) ? 1 : 0;
    control.broadcast(host_view(&more, 1, 1), 0);
  }
}

// Elements of what a step sends, in the type on the wire.
std::vector<int64_t> message_sizes(const StepTimeline& step, DType wire) {
  std::vector<int64_t> sizes;
  for (const TimedMessage& message : step.messages) {
    sizes.push_back(1 + static_cast<int64_t>(message.bytes / wire_bytes(wire)));
  }
  return sizes;
}

double median_compute(std::vector<StepTimeline> steps) {
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end(),
                   [](const StepTimeline& a, const StepTimeline& b) { return a.compute() < b.compute(); });
  return middle->compute();
}

// Both at once, for what each loses by it. Gives the bytes a second of the sums.
double time_both(StepTrial& trial, const SumCost& alone, DType wire, RankMeasurements& own) {
  const double width = wire_bytes(wire);
  const auto elements = std::clamp(static_cast<int64_t>(kMessageSeconds * alone.bytes_per_second / width),
                                   int64_t{1024}, std::max<int64_t>(trial.usual_message(), 1024));
  std::vector<StepTimeline> steps;
  double rate = 0;
  {
    ConstantSums constant(trial.sums(), elements, wire);
    const Stopwatch watch;
    while (!constant.ended()) {
      steps.push_back(trial.run_step());
      if (watch.seconds() >= kBusySeconds && steps.size() >= 3) {
        constant.finish();
      }
    }
    rate = constant.messages_per_second();
  }
  steps.pop_back();  // its end had the cores for itself
  own.compute_speed = std::min(1.0, median_compute(own.steps) / median_compute(steps));
  const double seconds = std::max(1 / rate - 2 * alone.message_seconds, 0.05 / rate);
  return static_cast<double>(elements) * width / seconds;
}

}  // namespace

Measurements measure_all(dist::ProcessGroup& group, const train::TrainConfig& config, const data::Prepared& data) {
  const Stopwatch watch;
  std::vector<int> everyone;
  for (const dist::RankInfo& member : group.ranks()) {
    everyone.push_back(member.rank);
  }
  dist::Communicator& control = group.add_communicator("preflight", everyone);
  const auto backend = backend::make_backend(config.device, config.threads);
  Measurements all;
  RankMeasurements own = look_around(group, *backend, config);
  if (group.nodes() > 1) {
    log::info("links between {} hosts ...", group.nodes());
    own.links = measure_links(group, control, kLinkSeconds);
  }
  StepTrial trial(group, *backend, data, config);
  log::info("matrix products, all ranks at once ...");
  control.barrier();
  own.product_flops = train::measure_product_rate(*backend, trial.compute());
  own.clock_mhz = sm_clock(*backend);
  log::info("steps without the network ...");
  time_steps(trial, control, *backend, own.steps);
  all.wire = trial.wire();
  if (group.size() > 1) {
    log::info("sums over all ranks ...");
    all.sums =
        measure_sums(trial.sums(), control, *backend, message_sizes(own.steps.back(), all.wire), all.wire, kSumSeconds);
    all.busy_bytes_per_second = all.sums.bytes_per_second;
    if (backend->stream().handle == nullptr) {
      log::info("both at once ...");
      all.busy_bytes_per_second = time_both(trial, all.sums, all.wire, own);
    }
  }
  own.sent = static_cast<double>(trial.planned_traffic().sent);
  own.received = static_cast<double>(trial.planned_traffic().received);
  for (const std::string& text : group.gather(to_text(own))) {
    all.ranks.push_back(parse_measurements(text));
  }
  all.parameters = static_cast<double>(trial.parameters());
  all.source_tokens = trial.source_tokens();
  all.target_tokens = trial.target_tokens();
  all.epochs_a_step = trial.epochs_a_step();
  all.checkpoint_bytes = trial.checkpoint_bytes();
  all.checkpoints = static_cast<double>(config.checkpoint.keep_last + config.checkpoint.keep_best + 1);
  all.seconds = watch.seconds();
  return all;
}

}  // namespace tandem::preflight
