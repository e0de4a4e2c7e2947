#include "decoding.h"

#include "data/lines.h"
#include "text/cleaning.h"
#include "train/setup.h"

namespace tandem::cli {

namespace {

TranslateOptions translate_options(const DecodingOptions& options, int n_best, std::function<void()> before_batch) {
  TranslateOptions translate;
  translate.decode = {.beam = options.beam, .alpha = options.alpha, .n_best = n_best, .max_extra = options.max_extra};
  translate.batch = options.batch;
  translate.threads = options.threads;
  translate.before_batch = std::move(before_batch);
  check(translate);
  return translate;
}

}  // namespace

Precision precision_of(const std::string& name) {
  return name == "f32" ? Precision::f32 : name == "bf16" ? Precision::bf16 : Precision::automatic;
}

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

LoadedTranslator::LoadedTranslator(const DecodingOptions& options, int n_best, std::function<void()> before_batch)
    : translate(translate_options(options, n_best, std::move(before_batch))),
      backend(make_backend(options.device, options.threads)),
      model(*backend, options.model, compute_type(precision_of(options.precision), *backend), !options.no_ema),
      decoder(*backend, model.model(), model.weights()),
      translator(decoder, model.subwords(Side::source), model.subwords(Side::target), translate) {}

std::vector<std::string> read_lines(const std::string& file) {
  LineReader reader(file);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) {
    require(!reader.cut(), "line {} of {} is longer than {} bytes", reader.lines(), reader.name(),
            LineReader::kLongestLine);
    require(valid_utf8(line), "line {} of {} is not valid UTF-8", reader.lines(), reader.name());
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace tandem::cli
