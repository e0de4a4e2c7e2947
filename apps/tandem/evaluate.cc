// tandem evaluate: loss, perplexity, accuracy, BLEU and chrF of a model on a test set.
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "core/error.h"
#include "core/log.h"
#include "decode/text_output.h"
#include "decoding.h"
#include "text/bleu.h"
#include "text/chrf.h"
#include "train/loss_evaluation.h"

namespace tandem::cli {

namespace {

struct EvaluateArguments {
  DecodingOptions decoding;
  std::string source, target, output;
  bool json = false;
};

struct Evaluation {
  size_t sentences = 0;
  PairLoss loss;
  BleuScore bleu;
  ChrfScore chrf;
  std::string bleu_signature = signature(BleuOptions{}, 1);
  std::string chrf_signature = signature(ChrfOptions{}, 1);
};

PairLoss loss_of(LoadedTranslator& loaded, const std::vector<std::string>& source,
                 const std::vector<std::string>& target) {
  const auto encode = [&](Side side, const std::vector<std::string>& lines) {
    std::vector<Ids> ids(lines.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      loaded.model.subwords(side).encode(lines[i], ids[i]);
    }
    return ids;
  };
  Arena arena([&](size_t bytes) { return loaded.backend->allocate(bytes); });
  const PairLoss loss = evaluate_loss(*loaded.backend, loaded.model.model(), loaded.model.weights(),
                                      encode(Side::source, source), encode(Side::target, target), arena);
  require(loss.totals.tokens > 0, "every pair is longer than the model's limit of {} pieces: no loss can be computed",
          loaded.model.model().config().max_length);
  if (loss.too_long > 0) {
    log::warning("{} pairs are longer than the model's limit of {} pieces and are left out of the loss", loss.too_long,
                 loaded.model.model().config().max_length);
  }
  return loss;
}

nlohmann::ordered_json to_json(const Evaluation& result, const LoadedTranslator& loaded) {
  return {{"model", loaded.model.directory().string()},
          {"step", loaded.model.step()},
          {"sentences", result.sentences},
          {"nll", result.loss.nll()},
          {"perplexity", std::exp(result.loss.nll())},
          {"accuracy", result.loss.accuracy()},
          {"target_tokens", result.loss.totals.tokens},
          {"too_long", result.loss.too_long},
          {"bleu", result.bleu.score},
          {"bleu_details", result.bleu.details},
          {"bleu_signature", result.bleu_signature},
          {"chrf", result.chrf.score},
          {"chrf_signature", result.chrf_signature},
          {"beam", loaded.translate.decode.beam},
          {"alpha", loaded.translate.decode.alpha}};
}

void print_text(const Evaluation& result) {
  fmt::print("sentences   {}\n", result.sentences);
  fmt::print("loss        {:.4f} nats a target piece (negative log-likelihood, no smoothing; {:.0f} pieces)\n",
             result.loss.nll(), result.loss.totals.tokens);
  fmt::print("perplexity  {:.3f}\n", std::exp(result.loss.nll()));
  fmt::print("accuracy    {:.2f} % of pieces\n", 100 * result.loss.accuracy());
  fmt::print("{}\n{}\n", result.bleu.text(2, result.bleu_signature), result.chrf.text(2, result.chrf_signature));
}

void run_evaluate(const EvaluateArguments& arguments) {
  const std::vector<std::string> source = read_lines(arguments.source), target = read_lines(arguments.target);
  require(source.size() == target.size(), "{} has {} lines but {} has {}: every source line needs its target line",
          arguments.source, source.size(), arguments.target, target.size());
  require(!source.empty(), "{} and {} are empty: there is nothing to evaluate", arguments.source, arguments.target);
  std::unique_ptr<TextOutput> output;
  if (!arguments.output.empty()) {
    output = std::make_unique<TextOutput>(arguments.output);
  }
  LoadedTranslator loaded(arguments.decoding, 1);
  Evaluation result;
  result.sentences = source.size();
  result.loss = loss_of(loaded, source, target);
  const std::vector<std::string> translations = loaded.translator.translate_best(source);
  result.bleu = corpus_bleu(translations, {target});
  result.chrf = corpus_chrf(translations, {target});
  if (output) {
    for (const std::string& translation : translations) {
      output->write(translation + "\n");
    }
    output->finish();
  }
  if (arguments.json) {
    fmt::print("{}\n", to_json(result, loaded).dump(1));
  } else {
    print_text(result);
  }
}

}  // namespace

void add_evaluate(Program& program) {
  // Shared by the options and the action, which outlive this call.
  const auto a = std::make_shared<EvaluateArguments>();
  Command command = program.add("evaluate", "Loss, perplexity, BLEU and chrF of a model on a test set.");
  add_decoding_options(command, a->decoding);
  command.option("--source", a->source, "raw source text, one sentence a line").required();
  command.option("--target", a->target, "raw reference text, line by line the same").required();
  command.option("-o,--output", a->output, "also write the translations to this file");
  command.flag("--json", a->json, "print JSON");
  command.example("tandem evaluate --model runs/en-de --source test.en --target test.de --output test.out.de");
  command.run([a] { run_evaluate(*a); });
}

}  // namespace tandem::cli
