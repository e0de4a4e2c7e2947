#include "decode/beam_search.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "text/subwords.h"

namespace tandem::decode {

namespace {

// A row given in some step. Hypotheses are chains of nodes; those with a common beginning share its nodes.
struct Node {
  int32_t previous = -1;  // index of the previous node; -1: this one is the first, bos
  int32_t id = 0;
};

struct Finished {
  int32_t last = 0;  // node
  double log_probability = 0;
  double score = 0;
  int64_t tokens = 0;
};

struct Sentence {
  int32_t index = 0;
  int64_t limit = 0;
  double largest_penalty = 0;      // penalty of a translation as long as the limit
  int32_t alive = 1;               // number of its rows in the next step, which are best first
  std::vector<Finished> finished;  // best first, at most n_best
};

struct Candidate {
  double log_probability = 0;
  int32_t beam = 0;  // index of the alive hypothesis that it extends
  int32_t id = 0;

  bool operator<(const Candidate& other) const {
    if (log_probability != other.log_probability) {
      return log_probability > other.log_probability;
    }
    return beam != other.beam ? beam < other.beam : id < other.id;
  }
};

// Number of candidates in a step: one for greedy search; otherwise twice the beam, so that a full beam remains even if
// every hypothesis may end here.
size_t search_width(const SearchOptions& config) { return config.beam == 1 ? 1 : 2 * static_cast<size_t>(config.beam); }

// The rows of a step for all sentences, with their log-probabilities.
struct Rows {
  std::vector<SearchRow> rows;
  std::vector<double> log_probabilities;

  void add(const SearchRow& row, double log_probability) {
    rows.push_back(row);
    log_probabilities.push_back(log_probability);
  }
  void resize(size_t count) {
    rows.resize(count);
    log_probabilities.resize(count);
  }
};

class Search {
 public:
  Search(std::span<const int64_t> limits, const SearchOptions& config)
      : config_(config), width_(search_width(config)), results_(limits.size()) {
    for (size_t i = 0; i < limits.size(); ++i) {
      require(limits[i] >= 1, "sentence {} may have {} pieces: the limit must be at least 1", i, limits[i]);
      const auto index = static_cast<int32_t>(i);
      active_.push_back({.index = index,
                         .limit = limits[i],
                         .largest_penalty = length_penalty(limits[i], config.alpha),
                         .finished = {}});
      now_.add({index, -1, text::kBos}, 0);
    }
  }

  std::vector<std::vector<Hypothesis>> run(StepScorer& scorer) {
    // Two more than the width, because pad and bos are never chosen.
    k_ = std::min(scorer.vocabulary(), static_cast<int64_t>(width_) + 2);
    for (int64_t length = 1; !now_.rows.empty(); ++length) {
      scorer.step(now_.rows, k_, values_, ids_);
      extend_all(length);
    }
    return std::move(results_);
  }

 private:
  // Moves all sentences from `length - 1` to `length` pieces.
  void extend_all(int64_t length) {
    const auto parents = first_node_;
    first_node_ = static_cast<int32_t>(history_.size());
    for (const SearchRow& row : now_.rows) {
      history_.push_back({row.parent < 0 ? -1 : parents + row.parent, row.token});
    }
    const double penalty = length_penalty(length, config_.alpha);
    next_.resize(0);
    int32_t first_row = 0;
    for (Sentence& sentence : active_) {
      const int32_t rows = sentence.alive;
      extend(sentence, first_row, length, penalty);
      first_row += rows;
      if (sentence.alive == 0) {
        for (const Finished& finished : sentence.finished) {
          results_[static_cast<size_t>(sentence.index)].push_back(
              {ids_of(finished.last), finished.log_probability, finished.score, finished.tokens});
        }
      }
    }
    std::erase_if(active_, [](const Sentence& sentence) { return sentence.alive == 0; });
    std::swap(now_, next_);
  }

  // The sentence's rows are the `sentence.alive` rows from first_row on.
  void extend(Sentence& sentence, int32_t first_row, int64_t length, double penalty) {
    const size_t rows_before = next_.rows.size();
    const auto wanted = static_cast<size_t>(config_.n_best);
    find_candidates(first_row, sentence.alive);
    sentence.alive = 0;
    for (const Candidate& candidate : candidates_) {
      const int32_t row = first_row + candidate.beam;
      if (candidate.id == text::kEos) {
        add_finished(sentence.finished,
                     {first_node_ + row, candidate.log_probability, candidate.log_probability / penalty, length});
      } else if (sentence.alive < config_.beam) {
        next_.add({sentence.index, row, candidate.id}, candidate.log_probability);
        ++sentence.alive;
      }
    }
    if (length == sentence.limit) {
      for (size_t row = rows_before; row < next_.rows.size() && sentence.finished.size() < wanted; ++row) {
        history_.push_back({first_node_ + next_.rows[row].parent, next_.rows[row].token});
        const double log_probability = next_.log_probabilities[row];
        sentence.finished.push_back(
            {static_cast<int32_t>(history_.size()) - 1, log_probability, log_probability / penalty, length});
      }
      sentence.alive = 0;
    }
    // No alive hypothesis can still come among the n best: log-probabilities only fall, and the longest possible
    // translation has the largest penalty.
    if (sentence.alive > 0 && sentence.finished.size() == wanted &&
        sentence.finished.back().score >= next_.log_probabilities[rows_before] / sentence.largest_penalty) {
      sentence.alive = 0;
    }
    if (sentence.alive == 0) {
      next_.resize(rows_before);
    }
  }

  // Finds the best continuations of rows [first_row, first_row + rows), best first.
  void find_candidates(int32_t first_row, int32_t rows) {
    candidates_.clear();
    for (int32_t beam = 0; beam < rows; ++beam) {
      const int64_t row = int64_t{first_row} + beam;
      const double so_far = now_.log_probabilities[static_cast<size_t>(row)];
      const float* values = values_.data() + row * k_;
      const int32_t* ids = ids_.data() + row * k_;
      for (int64_t i = 0; i < k_; ++i) {
        require(!std::isnan(values[i]),
                "the model's scores are not numbers: its weights are damaged or training diverged");
        const Candidate candidate{so_far + double{values[i]}, beam, ids[i]};
        if (candidates_.size() == width_ && candidate.log_probability < candidates_.back().log_probability) {
          break;  // those behind it are no better
        }
        if (ids[i] != text::kPad && ids[i] != text::kBos && std::isfinite(values[i])) {
          add_candidate(candidate);
        }
      }
    }
  }

  void add_candidate(const Candidate& candidate) {
    if (candidates_.size() == width_) {
      if (!(candidate < candidates_.back())) {
        return;
      }
      candidates_.pop_back();
    }
    candidates_.insert(std::upper_bound(candidates_.begin(), candidates_.end(), candidate), candidate);
  }

  void add_finished(std::vector<Finished>& finished, const Finished& one) const {
    const auto place = std::upper_bound(finished.begin(), finished.end(), one,
                                        [](const Finished& a, const Finished& b) { return a.score > b.score; });
    finished.insert(place, one);
    finished.resize(std::min(finished.size(), static_cast<size_t>(config_.n_best)));
  }

  std::vector<int32_t> ids_of(int32_t node) const {
    std::vector<int32_t> ids;
    for (; history_[static_cast<size_t>(node)].previous >= 0; node = history_[static_cast<size_t>(node)].previous) {
      ids.push_back(history_[static_cast<size_t>(node)].id);
    }
    std::reverse(ids.begin(), ids.end());
    return ids;
  }

  const SearchOptions& config_;
  size_t width_;
  int64_t k_ = 0;
  std::vector<std::vector<Hypothesis>> results_;
  std::vector<Sentence> active_;
  Rows now_, next_;
  std::vector<float> values_;  // [rows, k], as ids
  std::vector<int32_t> ids_;
  std::vector<Node> history_;
  int32_t first_node_ = 0;  // first node of the step's rows
  std::vector<Candidate> candidates_;
};

}  // namespace

void check(const SearchOptions& config) {
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
                                                 const SearchOptions& config) {
  check(config);
  return Search(limits, config).run(scorer);
}

}  // namespace tandem::decode
