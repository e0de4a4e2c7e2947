#include "text/ter.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "text/metric_edits.h"
#include "text/metric_text.h"
#include "text/tokenizers.h"

namespace tandem::text {

namespace {

std::u32string preprocess(std::u32string_view line, const TerOptions& options) {
  return metric::tokenize_tercom(metric::rstrip(line), options);
}

// sacreBLEU tokenizes references twice, which makes a difference if the first pass puts a space after "'s".
std::u32string preprocess_reference(std::u32string_view line, const TerOptions& options) {
  return preprocess(preprocess(line, options), options);
}

}  // namespace

TerStats& TerStats::operator+=(const TerStats& other) {
  edits += other.edits;
  reference_length += other.reference_length;
  return *this;
}

std::vector<TerStats> statistics(Lines hypotheses, const References& references, const TerOptions& options) {
  check_lines(hypotheses, references);
  std::vector<TerStats> result;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    metric::WordNumbers words;
    const std::u32string text = preprocess(metric::decode(hypotheses[i]), options);
    const auto hypothesis = words(metric::split(text));
    std::vector<std::u32string> texts;  // words refers to them
    texts.reserve(references.size());
    int64_t fewest = -1, length = 0;
    for (const auto& lines : references) {
      texts.push_back(preprocess_reference(metric::decode(lines[i]), options));
      const auto reference = words(metric::split(texts.back()));
      const int64_t edits = metric::translation_edits(hypothesis, reference);
      fewest = fewest < 0 ? edits : std::min(fewest, edits);
      length += static_cast<int64_t>(reference.size());
    }
    result.push_back({fewest, static_cast<double>(length) / static_cast<double>(references.size())});
  }
  return result;
}

TerScore score(const TerStats& stats, const TerOptions& /*options*/) {
  const auto edits = static_cast<double>(stats.edits);
  const double rate = stats.reference_length > 0 ? edits / stats.reference_length : (edits > 0 ? 1.0 : 0.0);
  return {.name = "TER", .score = 100 * rate, .details = ""};
}

std::string signature(const TerOptions& options, size_t references) {
  const auto yes = [](bool value) { return value ? "yes" : "no"; };
  return fmt::format("nrefs:{}|case:{}|tok:tercom|norm:{}|punct:{}|asian:{}|version:{}", references,
                     options.case_sensitive ? "mixed" : "lc", yes(options.normalized), yes(!options.no_punct),
                     yes(options.asian_support), kDefinition);
}

TerScore corpus_ter(Lines hypotheses, const References& references, const TerOptions& options) {
  return score(sum(statistics(hypotheses, references, options)), options);
}

}  // namespace tandem::text
