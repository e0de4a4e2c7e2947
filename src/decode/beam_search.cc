#include "decode/beam_search.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "text/subwords.h"

namespace tandem {

namespace {

struct Alive {
  std::vector<int32_t> ids;
  double log_probability = 0;
};

struct Sentence {
  int32_t index = 0;
  int64_t limit = 0;
  std::vector<Alive> alive;          // best first
  std::vector<Hypothesis> finished;  // best first, at most n_best
};

struct Candidate {
  double log_probability = 0;
  int32_t beam = 0;  // which of the sentence's alive hypotheses it extends
  int32_t id = 0;

  bool operator<(const Candidate& other) const {
    if (log_probability != other.log_probability) {
      return log_probability > other.log_probability;
    }
    return beam != other.beam ? beam < other.beam : id < other.id;
  }
};

// What the scorer said about one sentence's rows: values and ids [alive, k].
struct Scores {
  const float* values;
  const int32_t* ids;
  int64_t k;
};

// The candidates that a step looks at: one for greedy; otherwise twice the beam, so that a full beam is left even
// when every hypothesis may end here.
size_t search_width(const DecodeConfig& config) { return config.beam == 1 ? 1 : 2 * static_cast<size_t>(config.beam); }

std::vector<Candidate> best_candidates(const Sentence& sentence, const Scores& scores, const DecodeConfig& config) {
  std::vector<Candidate> candidates;
  for (size_t beam = 0; beam < sentence.alive.size(); ++beam) {
    for (int64_t i = static_cast<int64_t>(beam) * scores.k; i < static_cast<int64_t>(beam + 1) * scores.k; ++i) {
      const float value = scores.values[i];
      require(!std::isnan(value), "the model's scores are not numbers: its weights are damaged or training diverged");
      const bool possible = scores.ids[i] != kPad && scores.ids[i] != kBos && std::isfinite(value);
      if (possible) {
        candidates.push_back(
            {sentence.alive[beam].log_probability + double{value}, static_cast<int32_t>(beam), scores.ids[i]});
      }
    }
  }
  const size_t kept = std::min(search_width(config), candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(kept), candidates.end());
  candidates.resize(kept);
  return candidates;
}

void add_finished(std::vector<Hypothesis>& finished, Hypothesis hypothesis, size_t wanted) {
  const auto place = std::upper_bound(finished.begin(), finished.end(), hypothesis,
                                      [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  finished.insert(place, std::move(hypothesis));
  finished.resize(std::min(finished.size(), wanted));
}

// No alive hypothesis can still come among the n best: log-probabilities only fall, and the longest possible
// translation has the largest penalty.
bool is_decided(const Sentence& sentence, const DecodeConfig& config) {
  return sentence.finished.size() == static_cast<size_t>(config.n_best) &&
         sentence.finished.back().score >=
             sentence.alive.front().log_probability / length_penalty(sentence.limit, config.alpha);
}

// Moves the sentence from `length - 1` to `length` pieces and adds its new rows; parents count from first_row.
void extend(Sentence& sentence, const Scores& scores, int64_t length, int32_t first_row, const DecodeConfig& config,
            std::vector<SearchRow>& rows) {
  const double penalty = length_penalty(length, config.alpha);
  const size_t rows_before = rows.size();
  std::vector<Alive> alive;
  for (const Candidate& candidate : best_candidates(sentence, scores, config)) {
    std::vector<int32_t> ids = sentence.alive[static_cast<size_t>(candidate.beam)].ids;
    if (candidate.id == kEos) {
      add_finished(sentence.finished, {std::move(ids), candidate.log_probability, candidate.log_probability / penalty},
                   static_cast<size_t>(config.n_best));
    } else if (alive.size() < static_cast<size_t>(config.beam)) {
      ids.push_back(candidate.id);
      alive.push_back({std::move(ids), candidate.log_probability});
      rows.push_back({sentence.index, first_row + candidate.beam, candidate.id});
    }
  }
  sentence.alive = std::move(alive);
  if (length == sentence.limit) {
    for (Alive& unfinished : sentence.alive) {
      if (sentence.finished.size() < static_cast<size_t>(config.n_best)) {
        sentence.finished.push_back(
            {std::move(unfinished.ids), unfinished.log_probability, unfinished.log_probability / penalty});
      }
    }
    sentence.alive.clear();
  }
  if (!sentence.alive.empty() && is_decided(sentence, config)) {
    sentence.alive.clear();
  }
  if (sentence.alive.empty()) {
    rows.resize(rows_before);
  }
}

}  // namespace

void check(const DecodeConfig& config) {
  require(config.beam >= 1 && config.beam <= 1000, "beam {} is not possible: give a number from 1 to 1000",
          config.beam);
  require(config.n_best >= 1 && config.n_best <= config.beam,
          "{} best translations cannot come from a beam of {}: give n-best a number from 1 to the beam", config.n_best,
          config.beam);
  require(config.alpha >= 0 && config.alpha <= 100, "alpha {} is not possible: give a number from 0 to 100",
          config.alpha);
  require(config.max_extra >= 0, "max-extra {} is not possible: give 0 or more pieces", config.max_extra);
}

double length_penalty(int64_t length, double alpha) { return std::pow((5.0 + static_cast<double>(length)) / 6, alpha); }

std::vector<std::vector<Hypothesis>> beam_search(StepScorer& scorer, std::span<const int64_t> limits,
                                                 const DecodeConfig& config) {
  check(config);
  // Two more than the width, because pad and bos are never chosen.
  const int64_t k = std::min(scorer.vocabulary(), static_cast<int64_t>(search_width(config)) + 2);
  std::vector<std::vector<Hypothesis>> results(limits.size());
  std::vector<Sentence> active;
  std::vector<SearchRow> rows, next;
  for (size_t i = 0; i < limits.size(); ++i) {
    require(limits[i] >= 1, "sentence {} may have {} pieces: the limit must be at least 1", i, limits[i]);
    active.push_back({static_cast<int32_t>(i), limits[i], {Alive{}}, {}});
    rows.push_back({static_cast<int32_t>(i), -1, kBos});
  }
  std::vector<float> values;
  std::vector<int32_t> ids;
  for (int64_t length = 1; !rows.empty(); ++length) {
    scorer.step(rows, k, values, ids);
    next.clear();
    int64_t row = 0;
    for (Sentence& sentence : active) {
      const Scores scores{values.data() + row * k, ids.data() + row * k, k};
      const auto first_row = static_cast<int32_t>(row);
      row += static_cast<int64_t>(sentence.alive.size());
      extend(sentence, scores, length, first_row, config, next);
      if (sentence.alive.empty()) {
        results[static_cast<size_t>(sentence.index)] = std::move(sentence.finished);
      }
    }
    std::erase_if(active, [](const Sentence& sentence) { return sentence.alive.empty(); });
    rows.swap(next);
  }
  return results;
}

}  // namespace tandem
