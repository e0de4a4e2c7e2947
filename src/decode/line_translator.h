// Translates raw text: subwords, batches by length, beam search, detokenised lines in the order of the input.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/threads.h"
#include "decode/batch_decoder.h"
#include "tandem/translation.h"
#include "text/subwords.h"

namespace tandem::decode {

// Fails with an error that names the impossible value.
void check(const TranslateOptions& options);

// The best translation of each line.
std::vector<std::string> best_of(std::vector<std::vector<Translation>> translations);

// Cuts a line into parts of at most `limit` pieces (counted by `count_pieces`), without the white space between them:
// at the last sentence end in the second half of what fits, else at a clause mark, else between words, inside a word
// only if it alone is too long. A character with more pieces than the limit is left out.
std::vector<std::string> split_line(std::string_view line, int64_t limit,
                                    const std::function<int64_t(std::string_view)>& count_pieces);

class LineTranslator {
 public:
  // All references must outlive the translator. `threads` is used to convert text to pieces and back; 0 = as many as
  // this process may use.
  LineTranslator(BatchDecoder& decoder, const text::Subwords& source, const text::Subwords& target, int threads);

  // Like Translator::translate in tandem/translator.h.
  std::vector<std::vector<Translation>> translate(std::span<const std::string> lines, const TranslateOptions& options);

  std::vector<std::string> translate_best(std::span<const std::string> lines, const TranslateOptions& options) {
    return best_of(translate(lines, options));
  }

 private:
  struct Segment;

  std::vector<Segment> segments_of(std::span<const std::string> lines, int64_t first_line) const;
  void decode(std::vector<Segment>& segments, const TranslateOptions& options);
  Translation translation_of(const Hypothesis& hypothesis, bool pieces) const;
  std::vector<Translation> translations_of(std::span<const Segment> segments, bool pieces) const;

  BatchDecoder& decoder_;
  const text::Subwords& source_;
  const text::Subwords& target_;
  Threads threads_;
  int64_t most_sentences_ = INT64_MAX;  // most sentences that fit the memory, as far as is known
};

}  // namespace tandem::decode
