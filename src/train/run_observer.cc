#include "train/run_observer.h"

#include <unistd.h>

#include "core/file.h"
#include "core/human.h"
#include "core/log.h"
#include "data/prepared.h"
#include "train/flops.h"
#include "train/read_report.h"

namespace tandem::train {

namespace {

// The settings by which TensorBoard compares runs.
observe::Hyperparameters hyperparameters(const TrainConfig& config) {
  const auto number = [](auto value) { return static_cast<double>(value); };
  return {{"seed", number(config.seed)},
          {"encoder_layers", number(config.model.encoder_layers)},
          {"decoder_layers", number(config.model.decoder_layers)},
          {"width", number(config.model.width)},
          {"heads", number(config.model.heads)},
          {"feed_forward", number(config.model.feed_forward)},
          {"dropout", number(config.model.dropout)},
          {"vocabulary", number(config.model.target_vocabulary)},
          {"label_smoothing", number(config.label_smoothing)},
          {"batch_tokens", number(config.batch.tokens)},
          {"policy", std::string(name_of(config.schedule.policy))},
          {"learning_rate", config.schedule.learning_rate},
          {"ema_decay", number(config.optimizer.ema_decay)}};
}

}  // namespace

RunObserver::RunObserver(GroupRun& run, const TrainConfig& config, const std::string& gpu, std::optional<int64_t> done)
    : run_(run), log_(run.directory().metrics(), run.directory().events(), run.rank(), done), step_(done.value_or(0)) {
  log_.hyperparameters(hyperparameters(config));
  log_.text(step_, "config", "```\n" + to_toml(config) + "```");
  if (config.log.probe_seconds == 0) {
    return;
  }
  const observe::ProbeOptions options{.period = config.log.probe_seconds,
                                      .run = run.directory().root(),
                                      .interface = run.interface(),
                                      .gpu = gpu,
                                      .host = run.group().local_rank() == 0};
  probes_.emplace(options, [this](observe::Record record) {
    record.step = step_;
    write(record);
  });
}

void RunObserver::write(const observe::Record& record) {
  const std::lock_guard lock(mutex_);
  log_.write(record);
}

void RunObserver::rewind(int64_t done) {
  const std::lock_guard lock(mutex_);
  log_.rewind(done);
}

void RunObserver::sync() {
  std::unique_lock lock(mutex_);
  const Descriptor metrics = log_.metrics();
  lock.unlock();  // a disk may take its time, during which records are written
  ::fdatasync(metrics.get());
}

void RunObserver::write_validation(const ValidationResult& result, const store::CheckpointState& state,
                                   double seconds) {
  observe::Record record{"valid", state.step};
  std::string line = fmt::format("validation at step {}:", grouped(state.step));
  for (const auto& [name, value] : result.metrics()) {
    record.add(name, value);
    line += fmt::format(" {} {:.4g}", name, value);
  }
  record.add("seconds", seconds);
  record.add("elapsed_seconds", state.elapsed_seconds);
  if (result.valid.too_long > 0) {
    line += fmt::format(" ({} pairs too long for the loss)", result.valid.too_long);
    record.add("too_long", static_cast<double>(result.valid.too_long));
  }
  const bool best = state.best_score && state.best_step == state.step;
  log::info("{}, {}{}", line, human_duration(seconds), best ? ", the best so far" : "");
  if (result.bleu) {
    if (const auto& interval = result.bleu->interval) {
      record.add("bleu_low", interval->low).add("bleu_high", interval->high);
    }
    record.add("bleu_signature", result.bleu_signature);
    log::info("  {}", result.bleu->text(2, result.bleu_signature));
  }
  write(record);
  double index = 0;
  for (const ValidationResult::Sample& sample : result.samples) {
    log::info("  source       {}\n  reference    {}\n  translation  {}", sample.source, sample.reference,
              sample.translation);
    write(observe::Record{"sample", state.step}
              .add("index", index++)
              .add("source", sample.source)
              .add("reference", sample.reference)
              .add("translation", sample.translation));
  }
  sync();
}

void RunObserver::write_report() {
  if (!run_.first()) {
    return;
  }
  try {
    const report::RunReport report = read_report(run_.directory().root());
    report::write_reports(std::span(&report, 1), run_.directory().root());
  } catch (const std::exception& error) {
    log::warning("no report was written: {}", error.what());
  }
}

void RunObserver::finish(bool success) {
  probes_.reset();
  {
    const std::lock_guard lock(mutex_);
    log_.finish(success);
  }
  write_report();
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
  if (run.size() > 1) {  // bytes of a usual step: each side's rows vary a little from step to step
    data::Batcher batcher = learner.batcher();
    batcher.seek(state.cursor);
    const dist::Traffic planned = learner.planned_traffic(batcher.next());
    record.add("planned_sent_bytes", static_cast<double>(planned.sent))
        .add("planned_received_bytes", static_cast<double>(planned.received));
  }
  return record;
}

}  // namespace tandem::train
