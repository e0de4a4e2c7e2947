#include "decode/line_translator.h"

#include <algorithm>
#include <numeric>

#include "core/log.h"
#include "core/stopwatch.h"
#include "decode/split_line.h"

namespace tandem {

// A line, or a part of one, as the model reads it.
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

// The status line. Time is judged by source pieces, since the longest sentences come first.
class DecodeProgress {
 public:
  DecodeProgress(size_t sentences, size_t pieces) : sentences_(sentences), pieces_(pieces) {}

  void add(size_t pieces) { done_pieces_ += pieces; }

  void show(size_t done) const {
    std::string text = fmt::format("translating: {} of {} sentences", done, sentences_);
    if (done > 0) {
      const double seconds = watch_.seconds();
      const double left = static_cast<double>(pieces_ - done_pieces_) / static_cast<double>(done_pieces_);
      text +=
          fmt::format("  {:.1f}/s  {:.0f} s left", static_cast<double>(done) / std::max(seconds, 1e-6), seconds * left);
    }
    log::status(text);
  }

 private:
  size_t sentences_, pieces_, done_pieces_ = 0;
  Stopwatch watch_;
};

}  // namespace

void check(const TranslateOptions& options) {
  check(options.decode);
  require(options.batch >= 0, "a batch of {} sentences is not possible: give 1 or more, or 0 for the usual",
          options.batch);
}

LineTranslator::LineTranslator(BatchDecoder& decoder, const Subwords& source, const Subwords& target,
                               const TranslateOptions& options)
    : decoder_(decoder), source_(source), target_(target), options_(options), threads_(options.threads) {
  check(options);
  const int64_t usual = decoder.usual_sentences();
  options_.batch = options.batch > 0 ? options.batch : usual;
  options_.batch_tokens = options.batch_tokens > 0 ? options.batch_tokens : 64 * std::max(usual, options_.batch);
}

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

void LineTranslator::decode(std::vector<Segment>& segments) {
  std::vector<size_t> order(segments.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return segments[a].ids.size() > segments[b].ids.size(); });
  DecodeProgress progress(segments.size(),
                          std::accumulate(segments.begin(), segments.end(), size_t{0},
                                          [](size_t sum, const Segment& s) { return sum + s.ids.size(); }));
  for (size_t done = 0; done < order.size();) {
    std::vector<std::vector<int32_t>> batch;
    int64_t tokens = 0;
    for (size_t i = done; i < order.size() && static_cast<int64_t>(batch.size()) < options_.batch; ++i) {
      tokens += static_cast<int64_t>(segments[order[i]].ids.size()) + 1;
      if (!batch.empty() && tokens > options_.batch_tokens) {
        break;
      }
      batch.push_back(segments[order[i]].ids);
    }
    if (options_.before_batch) {
      options_.before_batch();
    }
    progress.show(done);
    std::vector<std::vector<Hypothesis>> results;
    try {
      results = decoder_.translate(batch, options_.decode);
    } catch (const OutOfMemory& error) {
      if (batch.size() == 1) {
        throw;
      }
      options_.batch = static_cast<int64_t>(batch.size() + 1) / 2;
      log::warning("{}; from now on {} sentences are decoded together", error.what(), options_.batch);
      continue;
    }
    for (std::vector<Hypothesis>& hypotheses : results) {
      require(!hypotheses.empty(), "the model gives no piece a probability: its weights are damaged");
      output_pieces_ += static_cast<int64_t>(hypotheses.front().ids.size()) + 1;
      progress.add(segments[order[done]].ids.size());
      segments[order[done++]].hypotheses = std::move(hypotheses);
    }
  }
  log::status("");
}

std::vector<Translation> LineTranslator::translations_of(std::span<const Segment> segments) const {
  std::vector<Translation> translations;
  if (segments.size() == 1) {
    for (const Hypothesis& hypothesis : segments[0].hypotheses) {
      translations.push_back({one_line(target_.decode(hypothesis.ids)), hypothesis.score, hypothesis.log_probability});
    }
    return translations;
  }
  Translation joined;
  for (const Segment& segment : segments) {
    const Hypothesis& best = segment.hypotheses.front();
    const std::string text = one_line(target_.decode(best.ids));
    joined.text += (joined.text.empty() || text.empty() ? "" : " ") + text;
    joined.score += best.score;
    joined.log_probability += best.log_probability;
  }
  return {joined};
}

std::vector<std::vector<Translation>> LineTranslator::translate(std::span<const std::string> lines,
                                                                int64_t first_line) {
  std::vector<Segment> segments = segments_of(lines, first_line);
  decode(segments);
  std::vector<std::span<const Segment>> parts;  // of each line
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
    result[static_cast<size_t>(line)] = translations_of(parts[static_cast<size_t>(line)]);
  });
  return result;
}

std::vector<std::string> LineTranslator::translate_best(std::span<const std::string> lines) {
  std::vector<std::string> best;
  for (std::vector<Translation>& translations : translate(lines)) {
    best.push_back(std::move(translations.front().text));
  }
  return best;
}

}  // namespace tandem
