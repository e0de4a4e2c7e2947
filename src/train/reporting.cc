#include "train/reporting.h"

#include "core/human.h"
#include "core/log.h"

namespace tandem::train {

void add_losses(observe::TrainPoint& window, backend::LossTotals& totals, const backend::LossTotals& step) {
  totals.smoothed += step.smoothed;
  totals.nll += step.nll;
  totals.correct += step.correct;
  totals.tokens += step.tokens;
  window.loss = totals.smoothed / totals.tokens;
  window.nll = totals.nll / totals.tokens;
  window.accuracy = totals.correct / totals.tokens;
}

void report_validation(const ValidationResult& result, const store::CheckpointState& state, double seconds,
                       RunObserver& observer) {
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
  observer.write(record);
  double index = 0;
  for (const ValidationResult::Sample& sample : result.samples) {
    log::info("  source       {}\n  reference    {}\n  translation  {}", sample.source, sample.reference,
              sample.translation);
    observer.write(observe::Record{"sample", state.step}
                       .add("index", index++)
                       .add("source", sample.source)
                       .add("reference", sample.reference)
                       .add("translation", sample.translation));
  }
  observer.sync();
}

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

}  // namespace tandem::train
