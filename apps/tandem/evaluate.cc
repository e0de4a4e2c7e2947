// tandem evaluate: loss, perplexity, accuracy, BLEU and chrF of a model on a test set.
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "core/error.h"
#include "core/log.h"
#include "data/lines.h"
#include "decode/line_translator.h"
#include "decode/translate_stream.h"
#include "model_options.h"
#include "text/bleu.h"
#include "text/chrf.h"
#include "text/cleaning.h"

namespace tandem::cli {

namespace {

struct EvaluateArguments {
  DecodingOptions decoding;
  std::string source, target, output;
  bool json = false;
};

// The lines of a text file, without newlines.
std::vector<std::string> read_lines(const std::string& file) {
  std::vector<std::string> lines;
  data::read_whole(file, false, [&](std::string& line, const data::LineReader& reader) {
    require(text::valid_utf8(line), "line {} of {} is not valid UTF-8", reader.lines(), reader.name());
    lines.push_back(std::move(line));
  });
  return lines;
}

struct Evaluation {
  size_t sentences = 0, too_long = 0;
  double nll = 0, accuracy = 0;  // per target token
  int64_t tokens = 0;
  text::BleuScore bleu;
  text::MetricScore chrf;
  std::string bleu_signature = text::signature(text::BleuOptions{}, 1);
  std::string chrf_signature = text::signature(text::ChrfOptions{}, 1);
};

void add_loss(Evaluation& result, Translator& translator, const std::vector<std::string>& source,
              const std::vector<std::string>& target) {
  double log_probability = 0;
  int64_t correct = 0;
  for (const PairScore& pair : translator.score(source, target)) {
    log_probability += pair.log_probability;
    result.tokens += pair.tokens;
    correct += pair.correct;
    result.too_long += pair.too_long();
  }
  const int64_t limit = translator.info().max_pieces;
  require(result.tokens > 0, "every pair is longer than the model's limit of {} tokens: no loss can be computed",
          limit);
  if (result.too_long > 0) {
    log::warning("{} pairs are longer than the model's limit of {} tokens and are left out of the loss",
                 result.too_long, limit);
  }
  result.nll = -log_probability / static_cast<double>(result.tokens);
  result.accuracy = static_cast<double>(correct) / static_cast<double>(result.tokens);
}

nlohmann::ordered_json to_json(const Evaluation& result, const ModelInfo& model, const SearchOptions& search) {
  return {{"model", model.directory},
          {"step", model.step},
          {"sentences", result.sentences},
          {"nll", result.nll},
          {"perplexity", std::exp(result.nll)},
          {"accuracy", result.accuracy},
          {"target_tokens", static_cast<double>(result.tokens)},
          {"too_long", result.too_long},
          {"bleu", result.bleu.score},
          {"bleu_details", result.bleu.details},
          {"bleu_signature", result.bleu_signature},
          {"chrf", result.chrf.score},
          {"chrf_signature", result.chrf_signature},
          {"beam", search.beam},
          {"alpha", search.alpha}};
}

void print_text(const Evaluation& result) {
  fmt::print("sentences   {}\n", result.sentences);
  fmt::print("loss        {:.4f} nats a target token (negative log-likelihood, no smoothing; {} tokens)\n", result.nll,
             result.tokens);
  fmt::print("perplexity  {:.3f}\n", std::exp(result.nll));
  fmt::print("accuracy    {:.2f} % of tokens\n", 100 * result.accuracy);
  fmt::print("{}\n{}\n", result.bleu.text(2, result.bleu_signature), result.chrf.text(2, result.chrf_signature));
}

void run_evaluate(const EvaluateArguments& arguments) {
  const std::vector<std::string> source = read_lines(arguments.source), target = read_lines(arguments.target);
  require(source.size() == target.size(), "{} has {} lines but {} has {}: every source line needs its target line",
          arguments.source, source.size(), arguments.target, target.size());
  require(!source.empty(), "{} and {} are empty: there is nothing to evaluate", arguments.source, arguments.target);
  std::unique_ptr<decode::TextOutput> output;
  if (!arguments.output.empty()) {
    output = std::make_unique<decode::TextOutput>(arguments.output);
  }
  const TranslateOptions options = translate_options(arguments.decoding, 1);
  Translator translator = open_translator(arguments.decoding);
  Evaluation result;
  result.sentences = source.size();
  add_loss(result, translator, source, target);
  const std::vector<std::string> translations = decode::best_of(translator.translate(source, options));
  result.bleu = text::corpus_score(translations, {target}, text::BleuOptions{});
  result.chrf = text::corpus_score(translations, {target}, text::ChrfOptions{});
  if (output) {
    for (const std::string& translation : translations) {
      output->write(translation + "\n");
    }
    output->finish();
  }
  if (arguments.json) {
    fmt::print("{}\n", to_json(result, translator.info(), options.search).dump(1));
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
  command.option("--target", a->target, "raw reference text, one line for each source line").required();
  command.option("-o,--output", a->output, "also write the translations to this file");
  command.flag("--json", a->json, "print JSON");
  command.example("tandem evaluate --model runs/en-de --source test.en --target test.de --output test.out.de");
  command.run([a] { run_evaluate(*a); });
}

}  // namespace tandem::cli
