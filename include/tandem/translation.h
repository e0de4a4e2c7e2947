// The plain values that go into and come out of a translator. Pieces are subword units of the model's vocabulary.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

namespace tandem {

// Options of one sentence's search. Its translations depend on these, the model, the device and the precision, but
// not on the other sentences of its batch (on a GPU, except for ties).
struct SearchOptions {
  int beam = 4;            // hypotheses kept; 1 = greedy: the most likely piece each time, up to the first end mark
  double alpha = 0.6;      // score = log-probability / ((5 + pieces) / 6)^alpha, the end mark counted
  int n_best = 1;          // translations returned for each line, at most `beam`
  int64_t max_extra = 50;  // a translation has at most this many pieces more than its source (and the model's limit)
};

// The progress of a call. Pieces predict the time better than sentences, since the longest sentences come first.
struct CallProgress {
  int64_t sentences = 0, all_sentences = 0;  // done, and in the whole call; a line that is too long counts as several
  int64_t pieces = 0, all_pieces = 0;        // pieces of these sentences' sources
};

// Options for running one call.
struct CallOptions {
  int64_t batch = 0;         // most sentences worked on together; 0 = the device's choice
  int64_t batch_tokens = 0;  // most source pieces worked on together, which bounds memory; 0 = 64 per sentence
  // Called on the caller's thread before each batch, and once more at the end of a call that was not stopped.
  std::function<void(const CallProgress&)> on_progress;
  std::stop_token stop;  // checked after each on_progress; a call that is stopped fails with an Error
};

struct TranslateOptions {
  SearchOptions search;
  CallOptions call;
  bool pieces = false;     // whether to fill Translation::pieces
  int64_t first_line = 1;  // the number of the call's first line in messages
};

struct Translation {
  std::string text;  // has no line end
  double score = 0;  // the higher the better; see SearchOptions::alpha
  double log_probability = 0;
  int64_t tokens = 0;               // pieces, and the end mark unless SearchOptions::max_extra cut it off
  std::vector<std::string> pieces;  // the end mark is left out
};

// The model's score of a given translation.
struct PairScore {
  double log_probability = 0;  // natural logarithm, of all target tokens together
  int64_t tokens = 0;          // pieces of the target, the end mark counted; 0 if the pair was left out
  int64_t correct = 0;         // tokens that the model would have chosen, given those before them

  // True if a side has more pieces than the model takes.
  bool too_long() const { return tokens == 0; }
};

}  // namespace tandem
