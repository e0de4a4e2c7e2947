#include "text/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/error.h"
#include "text/metric_text.h"
#include "text/tokenizers.h"

namespace tandem::text {

namespace {

bool takes_value(const BleuOptions& options) { return options.smoothing == "floor" || options.smoothing == "add-k"; }

double smooth_value(const BleuOptions& options) {
  if (options.smooth_value >= 0) {
    return options.smooth_value;
  }
  return options.smoothing == "floor" ? 0.1 : 1.0;
}

void check(const BleuOptions& options) {
  require(takes_value(options) || options.smoothing == "exp" || options.smoothing == "none",
          "unknown BLEU smoothing '{}': use exp, floor, add-k or none", options.smoothing);
  require(options.max_order >= 1 && options.max_order <= 100, "BLEU's n-gram order is 1 to 100, not {}",
          options.max_order);
}

std::u32string preprocess(const std::string& line, metric::Tokenizer tokenizer, bool lowercase) {
  std::u32string text = metric::code_points(line);
  if (lowercase) {
    text = metric::lower(text);
  }
  return tokenizer(metric::rstrip(text));
}

// The length closest to the hypothesis's; of two equally close ones, the shorter.
int64_t closest_length(int64_t length, const std::vector<int64_t>& references) {
  return *std::min_element(references.begin(), references.end(), [length](int64_t a, int64_t b) {
    const int64_t to_a = std::abs(a - length), to_b = std::abs(b - length);
    return to_a < to_b || (to_a == to_b && a < b);
  });
}

BleuStats line_statistics(const std::u32string& hypothesis, const std::vector<std::u32string>& references, int order) {
  metric::WordNumbers words;
  metric::NgramCounter count(order);
  const auto tokens = words(metric::split(hypothesis));
  const auto ngrams = count(tokens);
  metric::NgramCounts allowed(ngrams.size());
  std::vector<int64_t> lengths;
  for (const auto& reference : references) {
    const auto reference_tokens = words(metric::split(reference));
    metric::keep_larger(allowed, count(reference_tokens));
    lengths.push_back(static_cast<int64_t>(reference_tokens.size()));
  }
  BleuStats stats;
  stats.hypothesis_length = static_cast<int64_t>(tokens.size());
  stats.reference_length = closest_length(stats.hypothesis_length, lengths);
  for (size_t n = 0; n < ngrams.size(); ++n) {
    stats.matches.push_back(metric::matches(ngrams[n], allowed[n]));
    stats.totals.push_back(metric::total(ngrams[n]));
  }
  return stats;
}

// Fills the precisions and returns the number of orders to average over.
int smooth_precisions(std::vector<double>& precisions, const BleuStats& stats, const BleuOptions& options) {
  const double value = smooth_value(options);
  double halving = 1;
  int orders = options.max_order;
  for (int n = 0; n < options.max_order; ++n) {
    auto matched = static_cast<double>(stats.matches[n]);
    auto total = static_cast<double>(stats.totals[n]);
    if (options.smoothing == "add-k" && n > 0) {
      matched += value;
      total += value;
    }
    if (total == 0) {
      break;
    }
    if (options.effective_order) {
      orders = n + 1;
    }
    if (matched != 0) {
      precisions[n] = 100 * matched / total;
    } else if (options.smoothing == "exp") {
      halving *= 2;
      precisions[n] = 100 / (halving * total);
    } else if (options.smoothing == "floor") {
      precisions[n] = 100 * value / total;
    }
  }
  return orders;
}

double geometric_mean(const std::vector<double>& precisions, int orders) {
  double sum = 0;
  for (int n = 0; n < orders; ++n) {
    sum += precisions[n] == 0 ? -9999999999.0 : std::log(precisions[n]);
  }
  return std::exp(sum / orders);
}

std::string details_of(const BleuScore& score) {
  std::string text;
  for (const double precision : score.precisions) {
    text += fmt::format("{}{:.1f}", text.empty() ? "" : "/", precision);
  }
  const double ratio = score.reference_length == 0
                           ? 0
                           : static_cast<double>(score.hypothesis_length) / static_cast<double>(score.reference_length);
  return text + fmt::format(" (BP = {:.3f} ratio = {:.3f} hyp_len = {} ref_len = {})", score.brevity_penalty, ratio,
                            score.hypothesis_length, score.reference_length);
}

}  // namespace

BleuStats& BleuStats::operator+=(const BleuStats& other) {
  hypothesis_length += other.hypothesis_length;
  reference_length += other.reference_length;
  for (size_t n = 0; n < matches.size(); ++n) {
    matches[n] += other.matches[n];
    totals[n] += other.totals[n];
  }
  return *this;
}

std::vector<BleuStats> statistics(Lines hypotheses, const References& references, const BleuOptions& options) {
  check(options);
  check_lines(hypotheses, references);
  const metric::Tokenizer tokenizer = metric::bleu_tokenizer(options.tokenizer);
  std::vector<BleuStats> result;
  std::vector<std::u32string> texts(references.size());
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    for (size_t r = 0; r < references.size(); ++r) {
      texts[r] = preprocess(references[r][i], tokenizer, options.lowercase);
    }
    const auto hypothesis = preprocess(hypotheses[i], tokenizer, options.lowercase);
    result.push_back(line_statistics(hypothesis, texts, options.max_order));
  }
  return result;
}

BleuScore score(const BleuStats& stats, const BleuOptions& options) {
  BleuScore result;
  result.name = "BLEU";
  result.hypothesis_length = stats.hypothesis_length;
  result.reference_length = stats.reference_length;
  result.precisions.resize(stats.matches.size());
  const auto length = static_cast<double>(stats.hypothesis_length);
  const auto reference_length = static_cast<double>(stats.reference_length);
  result.brevity_penalty = 1;
  if (length < reference_length) {
    result.brevity_penalty = length > 0 ? std::exp(1 - reference_length / length) : 0;
  }
  if (std::any_of(stats.matches.begin(), stats.matches.end(), [](int64_t count) { return count != 0; })) {
    const int orders = smooth_precisions(result.precisions, stats, options);
    result.score = result.brevity_penalty * geometric_mean(result.precisions, orders);
  }
  result.details = details_of(result);
  return result;
}

std::string signature(const BleuOptions& options, size_t references) {
  const std::string value = takes_value(options) ? fmt::format("[{:.2f}]", smooth_value(options)) : "";
  return fmt::format("nrefs:{}|case:{}|eff:{}|tok:{}|smooth:{}{}|version:{}", references,
                     options.lowercase ? "lc" : "mixed", options.effective_order ? "yes" : "no", options.tokenizer,
                     options.smoothing, value, kDefinition);
}

}  // namespace tandem::text
