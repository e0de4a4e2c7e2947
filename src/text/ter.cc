#include "text/ter.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "text/metric_text.h"
#include "text/tokenizers.h"

namespace tandem::text {

namespace {

// ---- the number of edits

using Words = std::vector<uint32_t>;

constexpr int64_t kMaxShiftSize = 10;
constexpr int64_t kMaxShiftDistance = 50;
constexpr int64_t kBeamWidth = 25;
constexpr int64_t kMaxShiftCandidates = 1000;
constexpr int32_t kInfinity = int32_t{1} << 30;

// One row of the edit distance matrix inside the beam; every cell outside costs infinity.
struct Row {
  int64_t first = 0, last = 0;  // columns [first, last)
  std::vector<int32_t> cost;

  int32_t at(int64_t j) const { return j >= first && j < last ? cost[static_cast<size_t>(j - first)] : kInfinity; }
};

// For every reference word the last hypothesis word at or before it (-1: none); and which words of both are edited.
struct Alignment {
  std::vector<int64_t> hypothesis_of;
  std::vector<bool> reference_wrong, hypothesis_wrong;
};

// Edit distances between a reference and the reorderings of one hypothesis: all have the same length, hence the same
// beam.
class EditDistance {
 public:
  EditDistance(size_t hypothesis_length, std::span<const uint32_t> reference)
      : reference_(reference), rows_(hypothesis_length + 1) {
    const auto columns = static_cast<int64_t>(reference.size()) + 1;
    const auto rows = static_cast<int64_t>(hypothesis_length);
    const double ratio = rows > 0 ? static_cast<double>(columns - 1) / static_cast<double>(rows) : 1;
    const int64_t beam = static_cast<double>(kBeamWidth) < ratio / 2
                             ? static_cast<int64_t>(std::ceil(ratio / 2 + static_cast<double>(kBeamWidth)))
                             : kBeamWidth;
    for (int64_t i = 0; i <= rows; ++i) {
      const auto diagonal = static_cast<int64_t>(std::floor(static_cast<double>(i) * ratio));
      Row& row = rows_[static_cast<size_t>(i)];
      row.first = i == 0 ? 0 : std::max(int64_t{0}, diagonal - beam);
      row.last = i == 0 || i == rows ? columns : std::min(columns, diagonal + beam);
      row.cost.resize(static_cast<size_t>(row.last - row.first));
    }
    for (size_t j = 0; j < rows_[0].cost.size(); ++j) {
      rows_[0].cost[j] = static_cast<int32_t>(j);
    }
  }

  // Keeps the matrix for alignment() and for the cost of reorderings.
  int64_t set(const Words& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      fill(rows_[i + 1], rows_[i], words[i]);
    }
    return rows_.back().cost.back();
  }

  // Cost of `words`, whose first `same` words are those of the last set().
  int64_t cost(const Words& words, size_t same) {
    const Row* before = &rows_[same];
    for (size_t i = same; i < words.size(); ++i) {
      Row& row = scratch_[i % 2];
      row.first = rows_[i + 1].first;
      row.last = rows_[i + 1].last;
      row.cost.resize(rows_[i + 1].cost.size());
      fill(row, *before, words[i]);
      before = &row;
    }
    return before->cost.back();
  }

  // The alignment of the words of the last set(). Among equally cheap operations it prefers a match or substitution,
  // then the deletion of a hypothesis word, then an insertion.
  Alignment alignment(const Words& words) const {
    Alignment result{std::vector<int64_t>(reference_.size()), std::vector<bool>(reference_.size()),
                     std::vector<bool>(words.size())};
    size_t i = words.size(), j = reference_.size();
    while (i > 0 || j > 0) {
      const auto column = static_cast<int64_t>(j);
      const int32_t here = rows_[i].at(column);
      const bool wrong = i > 0 && j > 0 && words[i - 1] != reference_[j - 1];
      if (i > 0 && j > 0 && here == rows_[i - 1].at(column - 1) + (wrong ? 1 : 0)) {
        --i;
        --j;
        result.hypothesis_of[j] = static_cast<int64_t>(i);
        result.hypothesis_wrong[i] = result.reference_wrong[j] = wrong;
      } else if (i > 0 && (j == 0 || here == rows_[i - 1].at(column) + 1)) {
        result.hypothesis_wrong[--i] = true;
      } else {
        result.reference_wrong[--j] = true;
        result.hypothesis_of[j] = static_cast<int64_t>(i) - 1;
      }
    }
    return result;
  }

 private:
  void fill(Row& row, const Row& before, uint32_t word) const {
    int32_t left = kInfinity, above_left = before.at(row.first - 1);
    for (int64_t j = row.first; j < row.last; ++j) {
      const int32_t above = before.at(j);
      const bool equal = j > 0 && word == reference_[static_cast<size_t>(j - 1)];
      left = std::min({kInfinity, above_left + (equal ? 0 : 1), above + 1, left + 1});
      row.cost[static_cast<size_t>(j - row.first)] = left;
      above_left = above;
    }
  }

  std::span<const uint32_t> reference_;
  std::vector<Row> rows_;  // [hypothesis length + 1]
  Row scratch_[2];
};

// A group of words that occurs at another place in the reference.
struct Group {
  int64_t hypothesis, reference, length;
};

// Calls visit(group) for every equal group within the limits, until it returns false.
template <class Visit>
void for_each_equal_group(const Words& words, std::span<const uint32_t> reference, const Visit& visit) {
  const auto words_end = static_cast<int64_t>(words.size()), reference_end = static_cast<int64_t>(reference.size());
  for (int64_t h = 0; h < words_end; ++h) {
    const int64_t end = std::min(reference_end, h + kMaxShiftDistance + 1);
    for (int64_t r = std::max(int64_t{0}, h - kMaxShiftDistance); r < end; ++r) {
      for (int64_t n = 0; n < kMaxShiftSize && h + n < words_end && r + n < reference_end &&
                          words[static_cast<size_t>(h + n)] == reference[static_cast<size_t>(r + n)];
           ++n) {
        if (!visit(Group{h, r, n + 1})) {
          return;
        }
      }
    }
  }
}

// Moves the `length` words from `start` to before `target`; if that is inside the group, by target - start words.
Words shifted(Words words, int64_t start, int64_t length, int64_t target) {
  const auto begin = words.begin();
  if (target < start) {
    std::rotate(begin + target, begin + start, begin + start + length);
  } else {
    const int64_t end = target > start + length ? target : length + target;
    std::rotate(begin + start, begin + start + length, begin + std::min(end, static_cast<int64_t>(words.size())));
  }
  return words;
}

bool any_wrong(const std::vector<bool>& wrong, int64_t begin, int64_t length) {
  return std::find(wrong.begin() + begin, wrong.begin() + begin + length, true) != wrong.begin() + begin + length;
}

class ShiftSearch {
 public:
  ShiftSearch(std::span<const uint32_t> hypothesis, std::span<const uint32_t> reference)
      : words_(hypothesis.begin(), hypothesis.end()), reference_(reference), distance_(hypothesis.size(), reference) {}

  int64_t edits() {
    int64_t shifts = 0;
    while (true) {
      cost_ = distance_.set(words_);
      auto best = best_shift();
      if (candidates_ >= kMaxShiftCandidates || !best || std::get<0>(best->rank) <= 0) {
        return shifts + cost_;
      }
      ++shifts;
      words_ = std::move(best->words);
    }
  }

 private:
  struct Shift {
    // tercom's order of preference: the largest gain, the longest group, the earliest group, the earliest target
    std::tuple<int64_t, int64_t, int64_t, int64_t> rank;
    Words words;
  };

  std::optional<Shift> best_shift() {
    const Alignment alignment = distance_.alignment(words_);
    std::optional<Shift> best;
    for_each_equal_group(words_, reference_, [&](const Group& group) {
      const int64_t target = alignment.hypothesis_of[static_cast<size_t>(group.reference)];
      const bool within = group.hypothesis <= target && target < group.hypothesis + group.length;
      if (within || !any_wrong(alignment.hypothesis_wrong, group.hypothesis, group.length) ||
          !any_wrong(alignment.reference_wrong, group.reference, group.length)) {
        return true;
      }
      try_targets(group, alignment, best);
      return candidates_ < kMaxShiftCandidates;
    });
    return best;
  }

  void try_targets(const Group& group, const Alignment& alignment, std::optional<Shift>& best) {
    int64_t tried = -1;
    for (int64_t r = group.reference - 1; r < group.reference + group.length; ++r) {
      const int64_t target = r < 0 ? 0 : alignment.hypothesis_of[static_cast<size_t>(r)] + 1;
      if (target == tried) {
        continue;
      }
      tried = target;
      Words words = shifted(words_, group.hypothesis, group.length, target);
      const auto same = static_cast<size_t>(std::min(group.hypothesis, target));
      const std::tuple rank(cost_ - distance_.cost(words, same), group.length, -group.hypothesis, -target);
      ++candidates_;
      if (!best || rank > best->rank) {
        best = Shift{rank, std::move(words)};
      }
    }
  }

  Words words_;
  std::span<const uint32_t> reference_;
  EditDistance distance_;
  int64_t cost_ = 0;
  int64_t candidates_ = 0;  // tried so far, over all rounds
};

// ---- the score

std::u32string preprocess(std::u32string_view line, const TerOptions& options) {
  return metric::tokenize_tercom(metric::rstrip(line), options);
}

// sacreBLEU tokenizes references twice, which makes a difference if the first pass puts a space after "'s".
std::u32string preprocess_reference(std::u32string_view line, const TerOptions& options) {
  return preprocess(preprocess(line, options), options);
}

}  // namespace

int64_t translation_edits(std::span<const uint32_t> hypothesis, std::span<const uint32_t> reference) {
  return reference.empty() ? static_cast<int64_t>(hypothesis.size()) : ShiftSearch(hypothesis, reference).edits();
}

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
    const std::u32string text = preprocess(metric::code_points(hypotheses[i]), options);
    const auto hypothesis = words(metric::split(text));
    std::vector<std::u32string> texts;  // words refers to them
    texts.reserve(references.size());
    int64_t fewest = -1, length = 0;
    for (const auto& lines : references) {
      texts.push_back(preprocess_reference(metric::code_points(lines[i]), options));
      const auto reference = words(metric::split(texts.back()));
      const int64_t edits = translation_edits(hypothesis, reference);
      fewest = fewest < 0 ? edits : std::min(fewest, edits);
      length += static_cast<int64_t>(reference.size());
    }
    result.push_back({fewest, static_cast<double>(length) / static_cast<double>(references.size())});
  }
  return result;
}

MetricScore score(const TerStats& stats, const TerOptions& /*options*/) {
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

}  // namespace tandem::text
