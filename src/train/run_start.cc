#include "train/run_start.h"

#include "backend/cuda_device.h"
#include "core/file.h"
#include "core/human.h"
#include "core/log.h"
#include "data/prepared.h"
#include "train/product_rate.h"
#include "train/setup.h"

namespace tandem::train {

namespace {

// Weights belong to the pieces that they were trained on.
void require_same_tokenizer(const store::Checkpoint& checkpoint, const data::Prepared& data,
                            const std::filesystem::path& from) {
  require(checkpoint.source_tokenizer == data.source.bytes() &&
              checkpoint.target_tokenizer == (data.joint ? "" : data.target.front().bytes()),
          "init = {}: this model's tokenizer is another one than that of {}; prepare the data with --tokenizer {}",
          from.string(), data.directory.string(), (from / "source.model").string());
}

}  // namespace

std::string use_algorithms(backend::Backend& backend, const GroupRun& run, const TrainConfig& config) {
  constexpr size_t kMostBytes = 1 << 20;
  const bool has_own = !run.starts_over() && std::filesystem::exists(run.directory().algorithms());
  if (has_own) {
    try {
      const std::string own = read_file(run.directory().algorithms(), kMostBytes);
      backend.use_algorithms(own, run.directory().algorithms().string());
      if (run.first() && !config.algorithms.empty() && own != read_small_file(config.algorithms)) {
        log::warning("the run goes on with the algorithms that it began with, {}, not with {}",
                     run.directory().algorithms().string(), config.algorithms);
      }
      return "";
    } catch (const Error& error) {
      log::warning("{}; the run does not go on with the same bits", error.what());
    }
  }
  std::string table;
  try {
    table = config.algorithms.empty() ? "" : read_file(config.algorithms, kMostBytes);
    if (!table.empty()) {
      backend.use_algorithms(table, config.algorithms);
    }
  } catch (const Error& error) {
    if (!has_own) {
      throw;
    }
    log::warning("{}; the run goes on without a table", error.what());
    return "";
  }
  if (!table.empty() && !has_own && run.first() && !run.starts_over() && store::find_latest(run.directory().root())) {
    log::warning("the run began without a table of algorithms; with {} it does not go on with the same bits",
                 config.algorithms);
  }
  return table;
}

store::CheckpointState begin_fresh(Learner& learner, const data::Prepared& data, const TrainConfig& config) {
  learner.begin([&](const View& weights) {
    if (!config.init.empty()) {
      const auto from = store::resolve_model(config.init);
      require_same_tokenizer(store::load_checkpoint(from, false), data, from);
      store::load_inference_weights(from, learner.model().parameters(), weights);
      log::info("the weights begin as those of {}", from.string());
    }
  });
  store::CheckpointState state;
  state.seed = config.seed;
  state.data_fingerprint = data.fingerprint;
  return state;
}

std::optional<RunCheckpoints::Loaded> resume(RunCheckpoints& checkpoints, const Learner& learner, const GroupRun& run,
                                             const data::Prepared& data, const TrainConfig& config) {
  const auto& root = run.directory().root();
  const auto found = store::find_latest(root);
  if (found) {
    check_resume(store::load_checkpoint(*found), config, data.fingerprint, root);
  }
  auto loaded = checkpoints.load(found);
  if (!loaded) {
    return std::nullopt;
  }
  const store::CheckpointState& state = loaded->state;
  log::info("going on from step {} ({}); --start-over begins anew", grouped(state.step),
            found ? found->string() : "another host's checkpoint");
  const data::MicroBatchCapacity now = learner.fixed_micro_batch();
  if (run.first() && now.source > 0 && state.micro_batch_source > 0 &&
      (now.source != state.micro_batch_source || now.target != state.micro_batch_target)) {
    log::warning(
        "a micro-batch has room for {} + {} tokens now and had it for {} + {}: gradients are added up in another "
        "order, so "
        "the run does not go on with the same bits",
        grouped(now.source), grouped(now.target), grouped(state.micro_batch_source), grouped(state.micro_batch_target));
  }
  return loaded;
}

void write_settings(const GroupRun& run, const data::Prepared& data, const std::string& algorithms) {
  const store::RunDirectory& directory = run.directory();
  if (run.keeps_checkpoints()) {
    write_file(directory.config(), run.settings());
    const std::string statistics = read_small_file(data.directory / data::kStatisticsFile);
    if (!statistics.empty()) {
      write_file(directory.statistics(), statistics);
    }
  }
  if (!algorithms.empty()) {
    write_file(directory.algorithms(), algorithms);
  }
}

observe::Record setup_record(GroupRun& run, Learner& learner, backend::Backend& backend, const TrainConfig& config,
                             const store::CheckpointState& state) {
  observe::Record record{"setup", state.step};
  record.add("schema", 1)
      .add("rank", run.rank())
      .add("ranks", run.size())
      .add("node", run.group().node())
      .add("nodes", run.group().nodes())
      .add("host", run.group().world().host)
      .add("device", config.device)
      .add("backend", backend.description())
      .add("parameters", static_cast<double>(learner.model().parameters().count()))
      .add("precision", std::string(name_of(learner.compute())))
      .add("wire", std::string(name_of(wire_type(config.dist, backend, learner.compute()))))
      .add("sharded", config.dist.shard_optimizer ? 1 : 0)
      .add("interface", run.interface())
      .add("peak_flops", measure_product_rate(backend, learner.compute()))
      .add("version", std::string(TANDEM_VERSION));
  if (run.size() > 1) {  // of a usual step: each side's rows vary a little from step to step
    data::Batcher batcher = learner.batcher();
    batcher.seek(state.cursor);
    const dist::Traffic planned = learner.stepper().planned_traffic(batcher.next());
    record.add("planned_sent_bytes", static_cast<double>(planned.sent))
        .add("planned_received_bytes", static_cast<double>(planned.received));
  }
  return record;
}

}  // namespace tandem::train
