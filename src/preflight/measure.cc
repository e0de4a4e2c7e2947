#include "preflight/measure.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "backend/cuda_device.h"
#include "core/error.h"
#include "core/log.h"
#include "core/parse.h"
#include "core/stopwatch.h"
#include "data/prefetch.h"
#include "observe/probes/host_probes.h"
#include "train/flops.h"
#include "train/group_run.h"
#include "train/learner.h"

namespace tandem::preflight {

using Json = nlohmann::json;

// A step may have thousands of messages, so their fields have no names.
inline void to_json(Json& json, const TimedMessage& m) { json = {m.ready, m.bytes, m.gradients, m.after_join}; }
inline void from_json(const Json& json, TimedMessage& m) { m = {json.at(0), json.at(1), json.at(2), json.at(3)}; }
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepTimeline, messages, backward_end, update, overhead)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Link, from, to, there, back, round_trip, clock_offset, clock_error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankMeasurements, rank, node, host, address, interface, device, gpus, clock_mhz,
                                   memory_free, memory_total, product_flops, disk, disk_free, sent, received,
                                   compute_speed, steps, links)

namespace {

namespace fs = std::filesystem;

constexpr double kLinkSeconds = 14;  // all pairs together
constexpr double kSumSeconds = 2;
constexpr double kStepSeconds = 7;
constexpr double kBusySeconds = 4;
constexpr int kMostSteps = 60;
constexpr double kMessageSeconds = 0.1;  // approximate duration of a sum beside computing

constexpr size_t kMostMessages = 1 << 16;  // messages of a step

double seconds_between(uint64_t begin, uint64_t end) {
  return static_cast<double>(static_cast<int64_t>(end - begin)) * 1e-9;
}

// Replaces a process group's communicator: records what a step would send and when, but sends nothing. So a step can be
// timed without any network, yet with the real plan of messages.
class TimingCommunicator final : public dist::Communicator {
 public:
  // `real` decides how work is divided among ranks. Both must outlive this.
  TimingCommunicator(backend::Backend& backend, const dist::Communicator& real)
      : backend_(backend), real_(real), moments_(backend.allocate(kMostMessages * sizeof(uint64_t))) {}

  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  int shard_number() const override { return real_.shard_number(); }
  dist::Handle start(const dist::Collective& call) override {
    if (call.kind == Kind::barrier) {
      return {};
    }
    const bool half = call.kind == Kind::reduce_scatter || call.kind == Kind::all_gather;
    const bool rounded = call.kind == Kind::rounded_all_reduce;
    const auto bytes = static_cast<double>(call.buffer.bytes() + call.sums.bytes()) / (half || rounded ? 2 : 1);
    const bool gradients = call.kind == Kind::reduce_scatter || rounded ||
                           (call.kind == Kind::all_reduce && call.buffer.dtype != DType::f64);
    if (std::exchange(begun_, false)) {
      messages_.clear();
    }
    require(messages_.size() < kMostMessages, "a step of more than {} messages: raise dist.bucket_mb", kMostMessages);
    backend_.stamp(static_cast<uint64_t*>(moments_.data()) + messages_.size());
    messages_.push_back({.bytes = bytes, .gradients = gradients});
    return {};
  }
  void abort(const std::string& /*reason*/) override {}
  dist::Traffic planned_reduce_scatter(int64_t count, DType type) const override {
    return real_.planned_reduce_scatter(count, type);
  }

  // Called before a step is given. A replayed step makes no calls: its messages stay those of the recording, with new
  // moments.
  void begin_step() { begun_ = true; }

  // The messages of the step given last; waits for it. By the backend's clock it began at `begin`, and the ranks' sums
  // were there at `joined`.
  std::vector<TimedMessage> messages(uint64_t begin, uint64_t joined) const {
    std::vector<uint64_t> moments(messages_.size());
    if (!moments.empty()) {
      backend_.download(moments.data(), moments_.view(DType::i32, 1, static_cast<int64_t>(2 * moments.size())));
    }
    std::vector<TimedMessage> messages = messages_;
    for (size_t i = 0; i < moments.size(); ++i) {
      messages[i].ready = seconds_between(begin, moments[i]);
      messages[i].after_join = moments[i] > joined;
    }
    return messages;
  }

 private:
  backend::Backend& backend_;
  const dist::Communicator& real_;
  Buffer moments_;  // u64 [kMostMessages], in the backend's memory
  std::vector<TimedMessage> messages_;
  bool begun_ = false;
};

// Runs the config's training steps on this rank's share of the batch, with everything but the network.
class StepTrial {
 public:
  // All must outlive this. `config` is complete, as for training.
  StepTrial(dist::ProcessGroup& group, backend::Backend& backend, const data::Prepared& data,
            const train::TrainConfig& config)
      : own_communicator_(train::make_gradient_communicator(group, backend, config.dist)),
        communicator_(own_communicator_ ? *own_communicator_ : group.communicator()),
        timing_(backend, communicator_),
        learner_(backend, config, data.train, {group.communicator(), timing_}),
        batches_([this] { return learner_.batcher().next(); }) {
    learner_.begin();
  }

  StepTimeline run_step() {
    const Stopwatch watch;
    const data::TrainStep step = batches_.next();
    timing_.begin_step();
    // With a learning rate of 0 nothing is learned: the ranks' gradients are not summed up.
    learner_.give(step, learner_.input_of(step, static_cast<int64_t>(steps_), 0));
    const train::StepClock clock = learner_.take().clock;
    const bool alone = timing_.size() == 1;
    const uint64_t joining = alone ? clock.end : clock.joining, joined = alone ? clock.end : clock.joined;
    StepTimeline timeline;
    timeline.backward_end = seconds_between(clock.begin, joining);
    timeline.update = seconds_between(joined, clock.end);
    if (learner_.usual_under_way() == 0) {  // otherwise the host works while the device does
      timeline.overhead = watch.seconds() - clock.seconds();
    }
    timeline.messages = timing_.messages(clock.begin, joined);
    ++steps_;
    source_tokens_ += static_cast<double>(step.source_tokens);
    target_tokens_ += static_cast<double>(step.target_tokens);
    epochs_ = step.epochs_done;
    traffic_ = learner_.planned_traffic(step);
    return timeline;
  }

  dist::Communicator& sums() { return communicator_; }  // the communicator of the gradients
  train::Learner& learner() { return learner_; }

  // Traffic of the last step; means over the steps so far.
  dist::Traffic planned_traffic() const { return traffic_; }  // this rank's
  double source_tokens() const { return source_tokens_ / steps_; }
  double target_tokens() const { return target_tokens_ / steps_; }
  double epochs_a_step() const { return epochs_ / steps_; }

 private:
  std::unique_ptr<dist::Communicator> own_communicator_;
  dist::Communicator& communicator_;
  TimingCommunicator timing_;
  train::Learner learner_;
  data::Prefetcher batches_;
  dist::Traffic traffic_;
  double steps_ = 0, source_tokens_ = 0, target_tokens_ = 0, epochs_ = 0;
};

// The run directory, or the nearest directory above it that exists.
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
    return 0;
  }
  observe::Record sample{.kind = "probe"};
  if (const observe::Probe probe = observe::make_gpu_probe(backend::gpu_bus_id(stream.device))) {
    probe(sample, 0);
  }
  return sample.number("gpu_sm_clock_mhz").value_or(0);
}

RankMeasurements look_around(dist::ProcessGroup& group, backend::Backend& backend, const train::TrainConfig& config) {
  const dist::RankInfo& own = group.ranks()[static_cast<size_t>(group.rank())];
  const fs::path disk = existing_part(config.run);
  return {.rank = group.rank(),
          .node = group.node(),
          .host = own.host,
          .address = own.address,
          .interface = own.interface,
          .device = backend.description(),
          .gpus = backend::gpu_count(),
          .memory_free = static_cast<double>(backend.memory_sizes().free),
          .memory_total = static_cast<double>(backend.memory_sizes().total),
          .disk = disk.string(),
          .disk_free = static_cast<double>(fs::space(disk).available)};
}

// All ranks begin a step together, as in training.
void time_steps(StepTrial& trial, dist::Communicator& control, std::vector<StepTimeline>& steps) {
  for (int i = 0; i < trial.learner().warm_up(); ++i) {
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

// Elements of a step's messages, in the type on the wire.
std::vector<int64_t> message_sizes(const StepTimeline& step, DType wire) {
  std::vector<int64_t> sizes;
  for (const TimedMessage& message : step.messages) {
    sizes.push_back(1 + static_cast<int64_t>(message.bytes / wire_bytes(wire)));
  }
  return sizes;
}

// Times steps and sums at once, to see how they slow each other down. Returns the sums' bytes per second.
double time_both(StepTrial& trial, const NetworkModel& alone, DType wire, double bucket_mb, RankMeasurements& own) {
  const double width = wire_bytes(wire);
  const auto bucket = static_cast<int64_t>(bucket_mb * (1 << 20)) / static_cast<int64_t>(sizeof(float));
  const int64_t usual = std::min(bucket, trial.learner().model().parameters().flat_size());
  const auto elements = std::clamp(static_cast<int64_t>(kMessageSeconds * alone.bytes_per_second / width),
                                   int64_t{1024}, std::max<int64_t>(usual, 1024));
  std::vector<StepTimeline> steps;
  const Stopwatch watch;
  const double rate = add_up_beside(trial.sums(), elements, wire, [&] {
    steps.push_back(trial.run_step());
    return watch.seconds() >= kBusySeconds && steps.size() >= 3;
  });
  steps.pop_back();  // the last step had the cores to itself at its end
  const auto usual_compute = [](const auto& of) { return middle_of(of, &StepTimeline::compute).compute(); };
  own.compute_speed = std::min(1.0, usual_compute(own.steps) / usual_compute(steps));
  const double seconds = std::max(1 / rate - 2 * alone.message_seconds, 0.05 / rate);
  return static_cast<double>(elements) * width / seconds;
}

}  // namespace

std::string to_text(const RankMeasurements& measurements) {
  return Json(measurements).dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankMeasurements parse_measurements(const std::string& text) {
  require(is_shallow_json(text), "a rank's measurements cannot be read: their brackets are nested too deep");
  try {
    return Json::parse(text).get<RankMeasurements>();
  } catch (const Json::exception& error) {
    fail("a rank's measurements cannot be read: {}", error.what());
  }
}

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
  own.product_flops = train::measure_product_rate(*backend, trial.learner().compute());
  own.clock_mhz = sm_clock(*backend);
  log::info("steps without the network ...");
  time_steps(trial, control, own.steps);
  all.wire = train::wire_type(config.dist, *backend, trial.learner().compute());
  if (group.size() > 1) {
    log::info("sums over all ranks ...");
    all.network =
        measure_sums(trial.sums(), control, *backend, message_sizes(own.steps.back(), all.wire), all.wire, kSumSeconds);
    if (backend->stream().handle == nullptr) {
      log::info("both at once ...");
      all.network.busy_bytes_per_second = time_both(trial, all.network, all.wire, config.dist.bucket_mb, own);
    }
  }
  own.sent = static_cast<double>(trial.planned_traffic().sent);
  own.received = static_cast<double>(trial.planned_traffic().received);
  double speed = 0;
  for (const std::string& text : group.gather(to_text(own))) {
    all.ranks.push_back(parse_measurements(text));
    all.links.insert(all.links.end(), all.ranks.back().links.begin(), all.ranks.back().links.end());
    speed += all.ranks.back().compute_speed / group.size();
  }
  all.network.lost_per_byte = (1 - speed) / all.network.busy_bytes_per_second;
  all.parameters = static_cast<double>(trial.learner().model().parameters().count());
  all.source_tokens = trial.source_tokens();
  all.target_tokens = trial.target_tokens();
  all.epochs_a_step = trial.epochs_a_step();
  all.checkpoint_bytes = trial.learner().checkpoint_bytes();
  all.checkpoints = static_cast<double>(config.checkpoint.keep_last + config.checkpoint.keep_best + 1);
  all.seconds = watch.seconds();
  return all;
}

}  // namespace tandem::preflight
