#include "train/reporting.h"

#include "core/human.h"
#include "core/log.h"
#include "observe/memory.h"

namespace tandem {

void Window::add(const LossTotals& more) {
  totals.smoothed += more.smoothed;
  totals.nll += more.nll;
  totals.correct += more.correct;
  totals.tokens += more.tokens;
}

Record train_record(const Window& window, const CheckpointState& state, bool first) {
  const double tokens = window.totals.tokens;
  const double steps = static_cast<double>(window.steps);
  Record record{"train", state.step};
  if (first) {
    record.add("loss", window.totals.smoothed / tokens)
        .add("nll", window.totals.nll / tokens)
        .add("accuracy", window.totals.correct / tokens)
        .add("learning_rate", window.learning_rate)
        .add("gradient_norm", window.gradient_norm)
        .add("clipped_gradient_norm", window.clipped_gradient_norm)
        .add("epoch", state.epochs_done)
        .add("steps_per_second", steps / window.step_seconds)
        .add("source_tokens_per_second", static_cast<double>(window.source_tokens) / window.step_seconds)
        .add("target_tokens_per_second", static_cast<double>(window.target_tokens) / window.step_seconds)
        .add("pairs", static_cast<double>(window.pairs) / steps)
        .add("source_tokens", static_cast<double>(window.source_tokens) / steps)
        .add("target_tokens", static_cast<double>(window.target_tokens) / steps);
  }
  record.add("steps", steps)
      .add("step_seconds", window.step_seconds)
      .add("compute_seconds", window.step_seconds - window.data_seconds - window.communication_seconds)
      .add("communication_seconds", window.communication_seconds)
      .add("transfer_seconds", window.transfer_seconds)
      .add("data_seconds", window.data_seconds)
      .add("idle_seconds", window.idle_seconds)
      .add("validation_seconds", window.validation_seconds)
      .add("checkpoint_seconds", window.checkpoint_seconds)
      .add("flops", window.flops)
      .add("rows", static_cast<double>(window.rows))
      .add("dead_rows", static_cast<double>(window.dead_rows))
      .add("sent_bytes", static_cast<double>(window.traffic.sent))
      .add("received_bytes", static_cast<double>(window.traffic.received))
      .add("skipped_steps", static_cast<double>(window.skipped))
      .add("elapsed_seconds", state.elapsed_seconds)
      .add("peak_memory_bytes", static_cast<double>(peak_memory()));
  return record;
}

Progress progress_of(const Window& window, const CheckpointState& state, int64_t last_step, double share) {
  Progress progress;
  progress.step = state.step;
  progress.last_step = last_step;
  progress.epoch = state.epochs_done;
  progress.loss = window.totals.smoothed / window.totals.tokens;
  progress.learning_rate = window.learning_rate;
  progress.gradient_norm = window.gradient_norm;
  progress.tokens_per_second = static_cast<double>(window.target_tokens) / window.step_seconds;
  progress.ms_per_step = window.step_seconds / static_cast<double>(window.steps) * 1e3;
  progress.seconds_left = share > 0 ? state.elapsed_seconds * (1 - share) / share : -1;
  return progress;
}

void report_validation(const ValidationResult& result, const CheckpointState& state, double seconds,
                       RunObserver& observer) {
  Record record{"valid", state.step};
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
  observer.write(record);
  double index = 0;
  for (const ValidationResult::Sample& sample : result.samples) {
    log::info("  source       {}\n  reference    {}\n  translation  {}", sample.source, sample.reference,
              sample.translation);
    observer.write(Record{"sample", state.step}
                       .add("index", index++)
                       .add("source", sample.source)
                       .add("reference", sample.reference)
                       .add("translation", sample.translation));
  }
  observer.sync();
}

Hyperparameters hyperparameters(const TrainConfig& config) {
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

}  // namespace tandem
