// Compiled without contraction to fused multiply-adds: the choice of the best of several references must depend on the
// same bits as in sacreBLEU.
#include "text/chrf.h"

#include <string_view>

#include "core/error.h"
#include "text/metric_text.h"

namespace tandem::text {

namespace {

void check(const ChrfOptions& options) {
  require(options.char_order >= 0 && options.char_order <= 100 && options.word_order >= 0 &&
              options.word_order <= 100 && options.char_order + options.word_order > 0,
          "chrF's character and word orders are 0 to 100 and not both 0; here they are {} and {}", options.char_order,
          options.word_order);
  require(options.beta >= 0 && options.beta <= 1000, "chrF's beta is 0 to 1000, not {}", options.beta);
}

bool is_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// Words with one punctuation mark cut off: the last, or else the first character.
std::vector<std::u32string_view> cut_punctuation(std::u32string_view text) {
  std::vector<std::u32string_view> result;
  for (const auto word : metric::split(text)) {
    const size_t size = word.size();
    if (size > 1 && is_punctuation(word[size - 1])) {
      result.insert(result.end(), {word.substr(0, size - 1), word.substr(size - 1)});
    } else if (size > 1 && is_punctuation(word[0])) {
      result.insert(result.end(), {word.substr(0, 1), word.substr(1)});
    } else {
      result.push_back(word);
    }
  }
  return result;
}

std::u32string preprocess(const std::string& line, bool lowercase) {
  std::u32string text = metric::code_points(line);
  return lowercase ? metric::lower(text) : text;
}

// Counts of one segment's texts, which must outlive it.
class Counter {
 public:
  explicit Counter(const ChrfOptions& options)
      : whitespace_(options.whitespace), char_count_(options.char_order), word_count_(options.word_order) {}

  metric::NgramCounts operator()(std::u32string_view text) {
    std::vector<uint32_t> characters;
    for (const char32_t c : text) {
      if (whitespace_ || !metric::is_space(c)) {
        characters.push_back(c);
      }
    }
    metric::NgramCounts counts = char_count_(characters);
    for (auto& order : word_count_(words_(cut_punctuation(text)))) {
      counts.push_back(std::move(order));
    }
    return counts;
  }

 private:
  bool whitespace_;
  metric::NgramCounter char_count_, word_count_;
  metric::WordNumbers words_;
};

ChrfStats compare(const metric::NgramCounts& hypothesis, const metric::NgramCounts& reference) {
  ChrfStats stats;
  for (size_t i = 0; i < hypothesis.size(); ++i) {
    const int64_t in_reference = metric::total(reference[i]);
    stats.orders.push_back({in_reference == 0 ? 0 : metric::total(hypothesis[i]), in_reference,
                            metric::matches(hypothesis[i], reference[i])});
  }
  return stats;
}

double f_score(const ChrfStats& stats, const ChrfOptions& options) {
  constexpr double kEps = 1e-16;
  const double factor = static_cast<double>(options.beta) * options.beta;
  double score = 0, precision_sum = 0, recall_sum = 0;
  int effective = 0;
  for (const auto& order : stats.orders) {
    const auto matches = static_cast<double>(order.matches);
    const double precision = order.hypothesis > 0 ? matches / static_cast<double>(order.hypothesis) : kEps;
    const double recall = order.reference > 0 ? matches / static_cast<double>(order.reference) : kEps;
    const double denominator = factor * precision + recall;
    score += denominator > 0 ? (1 + factor) * precision * recall / denominator : kEps;
    if (order.hypothesis > 0 && order.reference > 0) {
      precision_sum += precision;
      recall_sum += recall;
      ++effective;
    }
  }
  if (options.eps_smoothing) {
    return 100 * score / static_cast<double>(stats.orders.size());
  }
  if (precision_sum + recall_sum == 0) {
    return 0;
  }
  const double precision = precision_sum / effective, recall = recall_sum / effective;
  return 100 * ((1 + factor) * precision * recall / (factor * precision + recall));
}

ChrfStats line_statistics(const std::u32string& hypothesis, const std::vector<std::u32string>& references,
                          const ChrfOptions& options) {
  Counter count(options);
  const auto counts = count(hypothesis);
  ChrfStats best;
  double best_score = -1;
  for (const auto& reference : references) {
    const ChrfStats stats = compare(counts, count(reference));
    const double score = f_score(stats, options);
    if (score > best_score) {
      best_score = score;
      best = stats;
    }
  }
  return best;
}

}  // namespace

ChrfStats& ChrfStats::operator+=(const ChrfStats& other) {
  for (size_t i = 0; i < orders.size(); ++i) {
    orders[i].hypothesis += other.orders[i].hypothesis;
    orders[i].reference += other.orders[i].reference;
    orders[i].matches += other.orders[i].matches;
  }
  return *this;
}

std::vector<ChrfStats> statistics(Lines hypotheses, const References& references, const ChrfOptions& options) {
  check(options);
  check_lines(hypotheses, references);
  std::vector<ChrfStats> result;
  std::vector<std::u32string> texts(references.size());
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    for (size_t r = 0; r < references.size(); ++r) {
      texts[r] = preprocess(references[r][i], options.lowercase);
    }
    result.push_back(line_statistics(preprocess(hypotheses[i], options.lowercase), texts, options));
  }
  return result;
}

MetricScore score(const ChrfStats& stats, const ChrfOptions& options) {
  return {.name = fmt::format("chrF{}{}", options.beta, std::string(static_cast<size_t>(options.word_order), '+')),
          .score = f_score(stats, options),
          .details = ""};
}

std::string signature(const ChrfOptions& options, size_t references) {
  return fmt::format("nrefs:{}|case:{}|eff:{}|nc:{}|nw:{}|space:{}|version:{}", references,
                     options.lowercase ? "lc" : "mixed", options.eps_smoothing ? "no" : "yes", options.char_order,
                     options.word_order, options.whitespace ? "yes" : "no", kDefinition);
}

}  // namespace tandem::text
