// tandem score: BLEU, chrF and TER of translations, with sacreBLEU's numbers and signatures.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "core/error.h"
#include "core/log.h"
#include "core/parse.h"
#include "data/lines.h"
#include "text/bleu.h"
#include "text/chrf.h"
#include "text/cleaning.h"
#include "text/metric_text.h"
#include "text/ter.h"
#include "text/tokenizers.h"

namespace tandem::cli {

namespace {

struct ScoreArguments {
  std::string hypothesis;
  std::vector<std::string> references;
  std::string metrics = "bleu,chrf,ter";
  text::BleuOptions bleu;
  text::ChrfOptions chrf;
  text::TerOptions ter;
  bool sentence_level = false, score_only = false, confidence = false;
  int width = 2;
  std::string format = "text";
};

struct Result {
  text::MetricScore score;
  std::string signature;
};

// Reads lines as sacreBLEU's command does: keeps a byte-order mark, removes white space at the end of a line.
std::vector<std::string> read_lines(const std::string& name) {
  std::vector<std::string> lines;
  bool warned = false;
  data::read_whole(name, true, [&](std::string& line, const data::LineReader& reader) {
    if (!warned && !text::valid_utf8(line)) {
      warned = true;
      log::warning("line {} of {} is not valid UTF-8: invalid bytes count as U+FFFD, here and in later lines",
                   reader.lines(), reader.name());
    }
    lines.emplace_back(text::metric::rstrip_utf8(line));
  });
  return lines;
}

std::string shown_name(const std::string& name) { return name == "-" ? "standard input" : name; }

text::References read_references(const ScoreArguments& arguments, size_t hypotheses) {
  require(
      std::count(arguments.references.begin(), arguments.references.end(), "-") + (arguments.hypothesis == "-") <= 1,
      "standard input ('-') is named more than once: give the other texts as files");
  text::References references;
  for (const auto& name : arguments.references) {
    references.push_back(read_lines(name));
    require(references.back().size() == hypotheses,
            "{} has {} lines but {} has {}: every translation needs its reference line",
            shown_name(arguments.hypothesis), hypotheses, shown_name(name), references.back().size());
  }
  return references;
}

template <class Options>
void add_results(std::vector<Result>& results, text::Lines hypotheses, const text::References& references,
                 const Options& options, const ScoreArguments& arguments) {
  const auto lines = text::statistics(hypotheses, references, options);
  const std::string made_by = text::signature(options, references.size());
  if (!arguments.sentence_level) {
    Result result{text::score(text::sum(lines), options), made_by};
    if (arguments.confidence) {
      result.score.interval = text::interval(lines, options);
      const std::string how = fmt::format("|bs:{}|seed:{}", text::kResamplings, text::kResamplingSeed);
      result.signature.insert(made_by.find('|'), how);  // after the number of references
    }
    results.push_back(std::move(result));
    return;
  }
  for (const auto& line : lines) {
    results.push_back({text::score(line, options), made_by});
  }
}

std::vector<Result> compute(const ScoreArguments& arguments, text::Lines hypotheses,
                            const text::References& references) {
  std::vector<Result> results;
  for (const std::string& name : split(arguments.metrics, ',')) {
    if (name == "bleu") {
      text::BleuOptions options = arguments.bleu;
      options.effective_order |= arguments.sentence_level;
      add_results(results, hypotheses, references, options, arguments);
    } else if (name == "chrf") {
      add_results(results, hypotheses, references, arguments.chrf, arguments);
    } else if (name == "ter") {
      add_results(results, hypotheses, references, arguments.ter, arguments);
    } else {
      fail("unknown metric '{}': use bleu, chrf, ter or several of them, separated by commas", name);
    }
  }
  require(!results.empty(), "no metric is named: use --metric bleu,chrf,ter");
  return results;
}

nlohmann::ordered_json to_json(const Result& result, int width) {
  nlohmann::ordered_json json;
  json["name"] = result.score.name;
  const auto rounded = [width](double value) { return std::stod(fmt::format("{:.{}f}", value, width)); };
  json["score"] = rounded(result.score.score);
  json["signature"] = result.signature;
  if (result.score.interval) {
    json["confidence_mean"] = rounded(result.score.interval->mean);
    json["confidence_var"] = rounded(result.score.interval->half_width);
    json["confidence_low"] = rounded(result.score.interval->low);
    json["confidence_high"] = rounded(result.score.interval->high);
  }
  if (!result.score.details.empty()) {
    json["verbose_score"] = result.score.details;
  }
  for (const std::string& part : split(result.signature, '|')) {
    const size_t colon = part.find(':');
    json[part.substr(0, colon)] = part.substr(colon + 1);
  }
  return json;
}

void print_json(const std::vector<Result>& results, int width) {
  nlohmann::ordered_json list;
  for (const auto& result : results) {
    list.push_back(to_json(result, width));
  }
  fmt::print("{}\n", (list.size() == 1 ? list[0] : list).dump(1));
}

// Prints one line per result; several metrics are aligned at the equals sign.
void print_text(const std::vector<Result>& results, const ScoreArguments& arguments) {
  size_t widest = 0;
  for (const auto& result : results) {
    widest = std::max(widest, result.score.name.size() + result.signature.size());
  }
  for (const auto& result : results) {
    if (arguments.score_only) {
      fmt::print("{}\n", result.score.number(arguments.width));
    } else {
      const size_t indent = widest - result.score.name.size() - result.signature.size();
      fmt::print("{:{}}{}\n", "", indent, result.score.text(arguments.width, result.signature));
    }
  }
}

void run_score(const ScoreArguments& arguments) {
  require(arguments.width >= 0 && arguments.width <= 17, "--width is 0 to 17 decimals, not {}", arguments.width);
  const double smooth = arguments.bleu.smooth_value;
  require(smooth == text::BleuOptions().smooth_value || (smooth >= 0 && std::isfinite(smooth)),
          "--smooth-value is {}: give 0 or more", smooth);
  require(!(arguments.confidence && arguments.sentence_level),
          "--confidence applies to a whole text: leave out --sentence-level");
  const auto hypotheses = read_lines(arguments.hypothesis);
  const auto references = read_references(arguments, hypotheses.size());
  require(!hypotheses.empty(), "{} is empty: there is nothing to score", shown_name(arguments.hypothesis));
  const auto results = compute(arguments, hypotheses, references);
  if (arguments.format == "json") {
    print_json(results, arguments.width);
  } else {
    print_text(results, arguments);
  }
}

}  // namespace

void add_score(Program& program) {
  const auto a = std::make_shared<ScoreArguments>();  // shared by the options and the action, which outlive this call
  Command command = program.add("score", "Scores translations: BLEU, chrF and TER, equal to sacreBLEU's.");
  command
      .option("--hyp", a->hypothesis,
              "translations, one a line, detokenised; plain, .gz, .xz, .zst, '-' for standard input")
      .required();
  command.option("--ref", a->references, "one or more reference files").required();
  command.option("--metric", a->metrics, "bleu, chrf, ter or several, separated by commas");
  command.option("--width", a->width, "decimals of the scores");
  command.option("--format", a->format, "output format").choices({"text", "json"});
  command.flag("-b,--score-only", a->score_only, "print the number alone");
  command.flag("--sentence-level", a->sentence_level, "print one score per line (BLEU with effective order)");
  command.flag("--confidence", a->confidence,
               fmt::format("also print the 95 % interval over {} resamplings of the lines", text::kResamplings));
  command.option("--tokenize", a->bleu.tokenizer, "BLEU tokenizer").choices(text::metric::kBleuTokenizers);
  command.flag("--lowercase,--lc", a->bleu.lowercase, "lower-case the text for BLEU");
  command.option("--smooth-method", a->bleu.smoothing, "BLEU smoothing").choices({"exp", "floor", "add-k", "none"});
  command.option("--smooth-value", a->bleu.smooth_value,
                 "smoothing value of floor (default 0.1) and add-k (default 1)");
  command.option("--max-ngram-order", a->bleu.max_order, "longest n-grams of BLEU");
  command.flag("--effective-order", a->bleu.effective_order,
               "leave out n-gram orders of BLEU for which a text is too short");
  command.option("--chrf-char-order", a->chrf.char_order, "longest character n-grams");
  command.option("--chrf-word-order", a->chrf.word_order, "longest word n-grams; 2 = chrF++");
  command.option("--chrf-beta", a->chrf.beta, "weight of recall against precision");
  command.flag("--chrf-whitespace", a->chrf.whitespace, "count white space as characters");
  command.flag("--chrf-lowercase", a->chrf.lowercase, "lower-case the text for chrF");
  command.flag("--chrf-eps-smoothing", a->chrf.eps_smoothing, "smooth as chrF++.py does");
  command.flag("--ter-normalized", a->ter.normalized, "decode entities and cut off punctuation");
  command.flag("--ter-no-punct", a->ter.no_punct, "remove punctuation");
  command.flag("--ter-asian-support", a->ter.asian_support, "treat Chinese and Japanese characters one by one");
  command.flag("--ter-case-sensitive", a->ter.case_sensitive, "do not lower-case");
  command.example("tandem score --hyp out.txt --ref ref.txt --metric bleu,chrf --width 6");
  command.run([a] { run_score(*a); });
}

}  // namespace tandem::cli
