// Raw text to raw text: subwords, batches by length, beam search, detokenised lines in the order they came.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/threads.h"
#include "decode/batch_decoder.h"
#include "text/subwords.h"

namespace tandem {

struct TranslateOptions {
  DecodeConfig decode;
  int64_t batch = 0;         // sentences decoded together at most, 0 = as many as the backend likes; does not change
                             // the result
  int64_t batch_tokens = 0;  // source pieces decoded together at most, which bounds memory; 0 = 64 a sentence
  int threads = 0;           // that turn text to pieces and back, 0 = as many as this process may use; does not change
                             // the result
  std::function<void()> before_batch;  // may throw to stop
};

// Fails with one sentence that names the impossible value.
void check(const TranslateOptions& options);

struct Translation {
  std::string text;  // never holds a line end
  double score = 0;
  double log_probability = 0;
};

class LineTranslator {
 public:
  // Everything given must outlive the translator.
  LineTranslator(BatchDecoder& decoder, const Subwords& source, const Subwords& target,
                 const TranslateOptions& options);

  // For each line its n best translations, at least one. A line without text has one empty translation. A line that is
  // longer than the model's limit is translated in parts, with a warning that names its number (the first line is
  // `first_line`); it has one translation: the parts' best, joined by spaces, scores added.
  std::vector<std::vector<Translation>> translate(std::span<const std::string> lines, int64_t first_line = 1);

  // The best translation of each line.
  std::vector<std::string> translate_best(std::span<const std::string> lines);

  int64_t batch() const { return options_.batch; }          // sentences decoded together at most
  int64_t output_pieces() const { return output_pieces_; }  // of the best translations so far, end marks counted

 private:
  struct Segment;

  std::vector<Segment> segments_of(std::span<const std::string> lines, int64_t first_line) const;
  void decode(std::vector<Segment>& segments);
  std::vector<Translation> translations_of(std::span<const Segment> segments) const;

  BatchDecoder& decoder_;
  const Subwords& source_;
  const Subwords& target_;
  TranslateOptions options_;
  Threads threads_;
  int64_t output_pieces_ = 0;
};

}  // namespace tandem
