
#include "backend/cuda_device.h"
#include "core/file.h"
#include "core/human.h"
#include "core/log.h"
#include "data/prepared_files.h"
#include "store/checkpoint_state.h"
#include "train/product_rate.h"
#include "train/setup.h"
#include "train/training.h"

namespace tandem {

// The table that the run began with, so that a resumed run computes the same bits. Where it has none, or one that is
// of no use here: the config's, which the run shall keep, and which is returned.
std::string Training::use_algorithms() {
  constexpr size_t kMostBytes = 1 << 20;
  const bool has_own = !team_run_.starts_over() && std::filesystem::exists(run_.algorithms());
  if (has_own) {
    try {
      const std::string own = read_file(run_.algorithms(), kMostBytes);
      backend_->use_algorithms(own, run_.algorithms().string());
      if (team_run_.first() && !config_.algorithms.empty() && own != small_file(config_.algorithms)) {
        log::warning("the run goes on with the algorithms that it began with, {}, not with {}",
                     run_.algorithms().string(), config_.algorithms);
      }
      return "";
    } catch (const Error& error) {
      log::warning("{}; the run does not go on with the same bits", error.what());
    }
  }
  std::string table;
  try {
    table = config_.algorithms.empty() ? "" : read_file(config_.algorithms, kMostBytes);
    if (!table.empty()) {
      backend_->use_algorithms(table, config_.algorithms);
    }
  } catch (const Error& error) {
    if (!has_own) {
      throw;
    }
    log::warning("{}; the run goes on without a table", error.what());
    return "";
  }
  if (!table.empty() && !has_own && team_run_.first() && !team_run_.starts_over() && find_latest(run_.root())) {
    log::warning("the run began without a table of algorithms; with {} it does not go on with the same bits",
                 config_.algorithms);
  }
  return table;
}

// Whoever reads the run later, or elsewhere, need not have the data.
void Training::keep_statistics() const {
  const std::string text = small_file(data_.directory / kStatisticsFile);
  if (!text.empty()) {
    write_file(run_.statistics(), text);
  }
}

void Training::begin() {
  const std::string table = use_algorithms();
  if (team_run_.keeps_checkpoints() && !team_run_.starts_over()) {
    remove_stale_checkpoints(run_.root());
  }
  team_run_.barrier();
  const bool resumed = !team_run_.starts_over() && resume();
  if (!resumed) {
    begin_fresh();
  }
  if (team_run_.starts_over()) {  // now that all that was asked for is there
    team_run_.clear();
  }
  log::open_file(team_run_.first() ? run_.log() : run_.rank_log(team_run_.rank()));
  if (team_run_.keeps_checkpoints()) {
    write_file(run_.config(), team_run_.settings());
    keep_statistics();
  }
  if (!table.empty()) {
    write_file(run_.algorithms(), table);
  }
  const DeviceStream stream = backend_->stream();
  observer_.emplace(team_run_, config_, stream.handle == nullptr ? "" : gpu_bus_id(stream.device),
                    resumed ? std::optional(state_.step) : std::nullopt);
  tell_setup();
  start_batches();
  traffic_ = communicator_.traffic();
  transferred_ = communicator_.transfer_seconds();
  ticked_ = counted_ = Clock::now();
  agree_on_time();
  saved_at_ = validated_at_ = elapsed();
}

void Training::tell_setup() {
  const DType compute = weights_.weights().compute.dtype;
  Record record{"setup", state_.step};
  record.add("schema", 1)
      .add("rank", team_run_.rank())
      .add("ranks", team_run_.size())
      .add("node", team_run_.team().node())
      .add("nodes", team_run_.team().nodes())
      .add("host", team_run_.team().world().host)
      .add("device", config_.device)
      .add("backend", backend_->description())
      .add("parameters", static_cast<double>(model_.parameters().count()))
      .add("precision", std::string(name_of(compute)))
      .add("wire", std::string(name_of(wire_type(config_.dist, *backend_, compute))))
      .add("sharded", config_.dist.shard_optimizer ? 1 : 0)
      .add("interface", team_run_.interface())
      .add("peak_flops", measure_product_rate(*backend_, compute))
      .add("version", std::string(TANDEM_VERSION));
  if (team_run_.size() > 1) {      // of a usual step: each side's rows vary a little from step to step
    batcher_.seek(state_.cursor);  // start_batches() seeks again
    const Traffic planned = stepper_.planned_traffic(batcher_.next());
    record.add("planned_sent_bytes", static_cast<double>(planned.sent))
        .add("planned_received_bytes", static_cast<double>(planned.received));
  }
  observer_->write(record);
}

// Weights belong to their pieces.
void Training::require_same_tokenizer(const Checkpoint& checkpoint, const std::filesystem::path& from) const {
  require(checkpoint.source_tokenizer == data_.source.bytes() &&
              checkpoint.target_tokenizer == (data_.joint ? "" : data_.target.front().bytes()),
          "init = {}: this model's tokenizer is another one than that of {}; prepare the data with --tokenizer {}",
          from.string(), data_.directory.string(), (from / "source.model").string());
}

void Training::begin_fresh() {
  state_ = {};
  state_.seed = config_.seed;
  state_.data_fingerprint = data_.fingerprint;
  {
    const HostCopy masters(*backend_, weights_.masters(), HostCopy::write);
    initialize(masters.view(), model_.parameters(), config_.seed);
    if (!config_.init.empty()) {
      const auto from = resolve_model(config_.init);
      require_same_tokenizer(load_checkpoint(from, false), from);
      load_inference_weights(from, model_.parameters(), masters.view());
      log::info("the weights begin as those of {}", from.string());
    }
  }
  weights_.refresh_copy();
  if (!weights_.average().empty()) {
    backend_->copy(weights_.average(), weights_.masters());
  }
  backend_->fill_zero(adam_.m());
  backend_->fill_zero(adam_.v());
  stepper_.set_updates(0);
}

bool Training::resume() {
  const auto found = find_latest(run_.root());
  if (found) {
    check_resume(load_checkpoint(*found), config_, data_.fingerprint, run_.root());
  }
  if (!load_newest(found)) {
    return false;
  }
  log::info("going on from step {} ({}); --start-over begins anew", grouped(state_.step),
            found ? found->string() : "another host's checkpoint");
  const RoundCapacity now = fixed_round();
  if (team_run_.first() && now.source > 0 && state_.round_source > 0 &&
      (now.source != state_.round_source || now.target != state_.round_target)) {
    log::warning(
        "a round has room for {} + {} tokens now and had it for {} + {}: gradients are added up in another order, so "
        "the run does not go on with the same bits",
        grouped(now.source), grouped(now.target), grouped(state_.round_source), grouped(state_.round_target));
  }
  return true;
}

// From the newest checkpoint that any rank finds on its disk, and the same on all; false where there is none.
bool Training::load_newest(const std::optional<std::filesystem::path>& found) {
  CheckpointState saved;
  if (found) {
    saved = load_checkpoint(*found, false).state;
  }
  const double own = found ? static_cast<double>(saved.step) : -1;
  const double newest = team_run_.largest(own);
  if (newest < 0) {
    return false;
  }
  const auto size = static_cast<double>(team_run_.size());
  const bool has_it = own == newest;
  const bool all_have_it = team_run_.largest(has_it ? 0 : 1) == 0;
  const auto first = static_cast<int>(size - 1 - team_run_.largest(has_it ? size - 1 - team_run_.rank() : -1));
  state_ = parse_state(team_run_.broadcast(to_json(saved), first), "another rank's state");
  load_tensors_of(found, all_have_it ? team_run_.rank() : first, !all_have_it);
  saved_step_ = state_.step;
  if (!all_have_it) {
    save();  // where it was missing, it is there again
  }
  return true;
}

// Rank `from` reads them from its disk; shared: the others get them from it.
void Training::load_tensors_of(const std::optional<std::filesystem::path>& checkpoint, int from, bool shared) {
  bool with_average = false;
  {
    const HostTensors tensors = host_tensors(HostCopy::write);
    const CheckpointTensors all = tensors.views();
    if (team_run_.rank() == from) {
      with_average = load_tensors(*checkpoint, model_.parameters(), all);
    }
    for (const View& view : {all.weights, all.m, all.v, all.ema}) {
      if (shared && !view.empty()) {
        team_run_.team().communicator().broadcast(view, from);
      }
    }
  }
  after_load(shared ? team_run_.broadcast(with_average ? 1 : 0, from) > 0 : with_average);
}

void Training::after_load(bool with_average) {
  if (!weights_.average().empty() && !with_average) {
    backend_->copy(weights_.average(), weights_.masters());
  }
  weights_.refresh_copy();
  stepper_.set_updates(state_.updates);
}

void Training::start_batches() {
  batches_.reset();  // its thread uses the batcher
  batcher_.seek(state_.cursor);
  last_epochs_done_ = state_.epochs_done;
  batches_.emplace([this] { return batcher_.next(); });
}

}  // namespace tandem
