#include "model_options.h"

#include "core/log.h"
#include "decode/batches.h"
#include "decode/line_translator.h"

namespace tandem::cli {

void add_decoding_options(Command& command, DecodingOptions& options) {
  command
      .option("-m,--model", options.model, "a run directory (its best checkpoint), a checkpoint or an averaged model")
      .required();
  ModelOptions& loading = options.loading;
  SearchOptions& search = options.translating.search;
  command.option("--beam", search.beam, "hypotheses kept for each sentence; 1 = greedy");
  command.option("--alpha", search.alpha, "length penalty: score = log-probability / ((5 + tokens) / 6)^alpha");
  command.option(
      "--batch", options.translating.call.batch,
      "sentences decoded together; 0 = the device's choice; does not change the result (on a GPU: except for ties)");
  command.option("--max-extra", search.max_extra, "most pieces by which a translation may exceed its source");
  command.option("--device", loading.device, "auto, cpu, cuda or cuda:N");
  command.option("--threads", loading.threads, "0 = all cores that this process may use");
  command.choice("--precision", loading.precision, kPrecisions, "precision of matrix products");
  command.no_flag("--no-ema", loading.use_average,
                  "use the trained weights even if the checkpoint has their moving average");
}

TranslateOptions translate_options(const DecodingOptions& options, int n_best) {
  TranslateOptions translate = options.translating;
  translate.search.n_best = n_best;
  translate.call.on_progress = decode::translation_status();
  decode::check(translate);
  return translate;
}

Translator open_translator(const DecodingOptions& options) {
  ModelOptions loading = options.loading;
  loading.on_message = [](Severity severity, const std::string& line) {
    severity == Severity::warning ? log::write_warning(line) : log::write_info(line);
  };
  return Translator(options.model, loading);
}

}  // namespace tandem::cli
