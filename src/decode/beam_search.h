// Beam search with any model that can score the next piece. batch_decoder.h has the Transformer's part.
//
// Every sentence is searched independently: its limit, its candidates and its end do not depend on the other sentences
// of the call, so a scorer whose rows are independent gives the same translations for any batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tandem/translation.h"

namespace tandem::decode {

// Fails with an error that names the impossible value.
void check(const SearchOptions& config);

struct Hypothesis {
  std::vector<int32_t> ids;  // without bos and eos
  double log_probability = 0;
  double score = 0;
  int64_t tokens = 0;  // tokens in log_probability: the ids, and the end mark unless the limit cut it off
};

// A row of a step: a hypothesis, given by its parent's row and its last token.
struct SearchRow {
  int32_t sentence = 0;  // index in the call
  int32_t parent = -1;   // its row in the previous step; -1 in the first step
  int32_t token = 0;     // bos in the first step
};

class StepScorer {
 public:
  virtual ~StepScorer() = default;

  virtual int64_t vocabulary() const = 0;
  // The k most likely next pieces of each row, best first, ties to the lower id: values and ids [rows, k].
  virtual void step(std::span<const SearchRow> rows, int64_t k, std::vector<float>& values,
                    std::vector<int32_t>& ids) = 0;
};

double length_penalty(int64_t length, double alpha);

// Results are best first; of equals, the hypothesis found first. limits[i] >= 1: most tokens of sentence i's
// translation, including the end mark; if too few hypotheses have ended by then, unfinished ones follow the finished.
std::vector<std::vector<Hypothesis>> beam_search(StepScorer& scorer, std::span<const int64_t> limits,
                                                 const SearchOptions& config);

}  // namespace tandem::decode
