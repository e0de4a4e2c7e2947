#include "decode/line_translator.h"

#include <algorithm>

#include "core/log.h"
#include "decode/batches.h"

namespace tandem::decode {

// The pieces of a line, or of a part of a line that is too long.
struct LineTranslator::Segment {
  size_t line = 0;
  std::vector<int32_t> ids;
  std::vector<Hypothesis> hypotheses;
};

namespace {

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos; }

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

}  // namespace

void check(const TranslateOptions& options) {
  check(options.search);
  check(options.call);
}

LineTranslator::LineTranslator(BatchDecoder& decoder, const text::Subwords& source, const text::Subwords& target,
                               int threads)
    : decoder_(decoder), source_(source), target_(target), threads_(threads) {}

std::vector<LineTranslator::Segment> LineTranslator::segments_of(std::span<const std::string> lines,
                                                                 int64_t first_line) const {
  const int64_t limit = decoder_.longest_source();
  const auto encode = [this](std::string_view text) {
    std::vector<int32_t> ids;
    source_.encode(text, ids);
    return ids;
  };
  std::vector<std::vector<int32_t>> ids(lines.size());
  threads_.parallel_for(static_cast<int64_t>(lines.size()), [&](int64_t i) {
    const std::string& line = lines[static_cast<size_t>(i)];
    if (!is_blank(line)) {
      source_.encode(line, ids[static_cast<size_t>(i)]);
    }
  });
  std::vector<Segment> segments;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto pieces = static_cast<int64_t>(ids[i].size());
    if (pieces <= limit) {
      segments.push_back({i, std::move(ids[i]), {}});
      continue;
    }
    const std::vector<std::string> parts =
        split_line(lines[i], limit, [&](std::string_view text) { return static_cast<int64_t>(encode(text).size()); });
    log::warning("line {} has {} pieces, more than the model's {}: it is translated in {} parts",
                 first_line + static_cast<int64_t>(i), pieces, limit, parts.size());
    for (const std::string& part : parts) {
      segments.push_back({i, encode(part), {}});
    }
  }
  std::erase_if(segments, [](const Segment& segment) { return segment.ids.empty(); });
  return segments;
}

void LineTranslator::decode(std::vector<Segment>& segments, const TranslateOptions& options) {
  std::vector<int64_t> sizes;
  for (const Segment& segment : segments) {
    sizes.push_back(static_cast<int64_t>(segment.ids.size()));
  }
  for_each_batch(sizes, options.call, decoder_.usual_sentences(), &most_sentences_,
                 [&](std::span<const size_t> chosen) {
                   std::vector<std::vector<int32_t>> batch;
                   for (const size_t i : chosen) {
                     batch.push_back(segments[i].ids);
                   }
                   std::vector<std::vector<Hypothesis>> results = decoder_.translate(batch, options.search);
                   for (size_t i = 0; i < results.size(); ++i) {
                     require(!results[i].empty(), "the model gives no piece a probability: its weights are damaged");
                     segments[chosen[i]].hypotheses = std::move(results[i]);
                   }
                 });
}

Translation LineTranslator::translation_of(const Hypothesis& hypothesis, bool pieces) const {
  Translation translation{.text = one_line(target_.decode(hypothesis.ids)),
                          .score = hypothesis.score,
                          .log_probability = hypothesis.log_probability,
                          .tokens = hypothesis.tokens,
                          .pieces = {}};
  for (size_t i = 0; pieces && i < hypothesis.ids.size(); ++i) {
    translation.pieces.push_back(target_.piece(hypothesis.ids[i]));
  }
  return translation;
}

std::vector<Translation> LineTranslator::translations_of(std::span<const Segment> segments, bool pieces) const {
  std::vector<Translation> translations;
  if (segments.size() == 1) {
    for (const Hypothesis& hypothesis : segments[0].hypotheses) {
      translations.push_back(translation_of(hypothesis, pieces));
    }
    return translations;
  }
  Translation joined;
  for (const Segment& segment : segments) {
    const Translation best = translation_of(segment.hypotheses.front(), pieces);
    joined.text += (joined.text.empty() || best.text.empty() ? "" : " ") + best.text;
    joined.score += best.score;
    joined.log_probability += best.log_probability;
    joined.tokens += best.tokens;
    joined.pieces.insert(joined.pieces.end(), best.pieces.begin(), best.pieces.end());
  }
  return {joined};
}

std::vector<std::vector<Translation>> LineTranslator::translate(std::span<const std::string> lines,
                                                                const TranslateOptions& options) {
  check(options);
  std::vector<Segment> segments = segments_of(lines, options.first_line);
  decode(segments, options);
  std::vector<std::span<const Segment>> parts;  // each line's segments
  size_t begin = 0;
  for (size_t line = 0; line < lines.size(); ++line) {
    size_t end = begin;
    while (end < segments.size() && segments[end].line == line) {
      ++end;
    }
    parts.push_back(std::span(segments).subspan(begin, end - begin));
    begin = end;
  }
  std::vector<std::vector<Translation>> result(lines.size());
  threads_.parallel_for(static_cast<int64_t>(lines.size()), [&](int64_t line) {
    result[static_cast<size_t>(line)] = translations_of(parts[static_cast<size_t>(line)], options.pieces);
  });
  return result;
}

std::vector<std::string> best_of(std::vector<std::vector<Translation>> translations) {
  std::vector<std::string> best;
  for (std::vector<Translation>& one : translations) {
    best.push_back(std::move(one.front().text));
  }
  return best;
}

}  // namespace tandem::decode
