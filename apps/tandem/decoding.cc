#include "decoding.h"

#include "core/error.h"
#include "core/log.h"
#include "data/lines.h"
#include "decode/batches.h"
#include "decode/line_translator.h"
#include "text/cleaning.h"

namespace tandem::cli {

void add_decoding_options(Command& command, DecodingOptions& options) {
  command
      .option("-m,--model", options.model, "a run directory (its best checkpoint), a checkpoint or an averaged model")
      .required();
  command.option("--beam", options.beam, "hypotheses kept for each sentence; 1 = greedy");
  command.option("--alpha", options.alpha, "length penalty: score = log-probability / ((5 + pieces) / 6)^alpha");
  command.option(
      "--batch", options.batch,
      "sentences decoded together, 0 = what the device likes; does not change the result (on a GPU: but for ties)");
  command.option("--max-extra", options.max_extra, "most pieces that a translation may have more than its source");
  command.option("--device", options.device, "auto, cpu, cuda or cuda:N");
  command.option("--threads", options.threads, "0 = all cores that this process may use");
  command.option("--precision", options.precision, "of the matrix products").choices({"auto", "f32", "bf16"});
  command.flag("--no-ema", options.no_ema,
               "use the trained weights even where the checkpoint has their moving average");
}

TranslateOptions translate_options(const DecodingOptions& options, int n_best) {
  TranslateOptions translate;
  translate.search = {.beam = options.beam, .alpha = options.alpha, .n_best = n_best, .max_extra = options.max_extra};
  translate.call.batch = options.batch;
  translate.call.on_progress = decode::translation_status();
  decode::check(translate);
  return translate;
}

Translator open_translator(const DecodingOptions& options) {
  ModelOptions model;
  model.device = options.device;
  model.threads = options.threads;
  model.precision = precision_of(options.precision);
  model.use_average = !options.no_ema;
  model.on_message = [](Severity severity, const std::string& line) {
    severity == Severity::warning ? log::write_warning(line) : log::write_info(line);
  };
  return Translator(options.model, model);
}

Precision precision_of(const std::string& name) {
  return name == "f32" ? Precision::f32 : name == "bf16" ? Precision::bf16 : Precision::automatic;
}

std::vector<std::string> read_lines(const std::string& file) {
  data::LineReader reader(file);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) {
    require(!reader.cut(), "line {} of {} is longer than {} bytes", reader.lines(), reader.name(),
            data::LineReader::kLongestLine);
    require(text::valid_utf8(line), "line {} of {} is not valid UTF-8", reader.lines(), reader.name());
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace tandem::cli
