#include "data/batcher.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/philox.h"
#include "text/subwords.h"

namespace tandem::data {

namespace {

constexpr uint32_t kShuffle = 0x5F1E;  // the PhiloxStream's purpose
constexpr int64_t kParts = 12;         // parts per step, or a multiple: 1, 2, 3, 4, 6 and 12 workers get equally many
constexpr int64_t kPartSide = 256;     // most tokens per side in a part (at least one pair); fits small micro-batches

// Uniform in [0, bound) without bias, from one random word and mostly without a division (Lemire, "Fast random integer
// generation in an interval", 2019), because a permutation of millions draws millions of numbers.
uint32_t draw_below(PhiloxStream& random, uint32_t bound) {
  uint64_t product = uint64_t{random.next()} * bound;
  if (static_cast<uint32_t>(product) < bound) {
    const uint32_t threshold = -bound % bound;
    while (static_cast<uint32_t>(product) < threshold) {
      product = uint64_t{random.next()} * bound;
    }
  }
  return static_cast<uint32_t>(product >> 32);
}

// Appends a sentence's positions and its end, once its tokens are in.
void close_sentence(HostSide& side) {
  const auto end = static_cast<int32_t>(side.tokens.size());
  const int32_t length = end - side.starts.back();
  for (int32_t i = 0; i < length; ++i) {
    side.position.push_back(i);
  }
  side.starts.push_back(end);
  side.longest = std::max<int64_t>(side.longest, length);
}

// `append` adds the sentence's token ids to a vector.
template <class Append>
void add_source(HostSide& side, const Append& append) {
  append(side.tokens);
  side.tokens.push_back(text::kEos);
  close_sentence(side);
}

template <class Append>
void add_target(HostBatch& batch, const Append& append) {
  std::vector<int32_t>& tokens = batch.target.tokens;
  tokens.push_back(text::kBos);
  const size_t first = tokens.size();
  append(tokens);
  batch.labels.insert(batch.labels.end(), tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end());
  batch.labels.push_back(text::kEos);
  close_sentence(batch.target);
}

// Counting sort of the rows by token id.
void sort_by_token(HostSide& side) {
  const int32_t highest = side.tokens.empty() ? -1 : *std::max_element(side.tokens.begin(), side.tokens.end());
  std::vector<int32_t> next(static_cast<size_t>(highest) + 2, 0);
  for (const int32_t id : side.tokens) {
    ++next[static_cast<size_t>(id) + 1];
  }
  side.order_starts.push_back(0);
  for (int32_t id = 0; id <= highest; ++id) {
    int32_t& end = next[static_cast<size_t>(id) + 1];
    if (end > 0) {
      side.order_ids.push_back(id);
      side.order_starts.push_back(side.order_starts.back() + end);
    }
    end += next[static_cast<size_t>(id)];
  }
  side.order_rows.resize(side.tokens.size());
  for (size_t row = 0; row < side.tokens.size(); ++row) {
    int32_t& place = next[static_cast<size_t>(side.tokens[row])];
    side.order_rows[static_cast<size_t>(place++)] = static_cast<int32_t>(row);
  }
}

// The index nearest to part / parts of the whole, where `sums[i]` is the cost of the first i pairs.
size_t cut_at(const std::vector<int64_t>& sums, int64_t part, int64_t parts) {
  const int64_t wanted = sums.back() * part / parts;
  const auto above = std::lower_bound(sums.begin(), sums.end(), wanted);
  const bool nearer_below = above != sums.begin() && wanted - *(above - 1) < *above - wanted;
  return static_cast<size_t>(above - sums.begin()) - (nearer_below ? 1 : 0);
}

}  // namespace

Batcher::Batcher(const Corpus& corpus, const BatchConfig& config, int worker, int workers)
    : corpus_(corpus), config_(config), worker_(worker), workers_(workers) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  require(worker >= 0 && worker < workers, "worker {} of {} workers", worker, workers);
  require(config.sentences > 0 || config.tokens > 0, "batch.tokens must be at least 1, not {}", config.tokens);
  require(config.max_length >= 1, "max_length must be at least 1, not {}", config.max_length);
  require(std::min({config.capacity.source, config.capacity.target, config.capacity.pairs}) >= 0,
          "a micro-batch of {} + {} tokens and {} pairs", config.capacity.source, config.capacity.target,
          config.capacity.pairs);
  require(config.tokens <= kMost && config.max_length <= kMost && config.sentences <= kMost / config.max_length,
          "a step of {} tokens or {} pairs of up to {} tokens is too large: at most {} tokens", config.tokens,
          config.sentences, config.max_length, kMost);
  require(corpus.size() <= kMost, "a corpus of {} pairs is too large: at most {}", corpus.size(), kMost);
  for (int64_t pair = 0; pair < corpus.size(); ++pair) {
    const Planned p = measured(static_cast<int32_t>(pair));
    if (std::max(p.source, p.target) <= config.max_length) {
      usable_.push_back(p.pair);
    }
  }
  too_long_ = corpus.size() - usable_pairs();
  require(!usable_.empty(), "none of the {} training pairs has at most {} tokens on both sides: raise max_length",
          corpus.size(), config.max_length);
  for (const int32_t pair : usable_) {
    const Planned p = measured(pair);
    const int32_t longest = std::max(p.source, p.target);
    require(config.sentences > 0 || longest <= config.tokens,
            "training pair {} has {} tokens but a step holds only {}: raise batch.tokens or lower max_length", pair,
            longest, config.tokens);
    require(
        fits({}, p),
        "training pair {} has {} tokens but a micro-batch holds only {}: raise batch.micro_batch or lower max_length",
        pair, longest, std::min(config.capacity.source, config.capacity.target));
  }
}

void Batcher::seek(Cursor cursor) {
  require(cursor.epoch >= 0 && cursor.index >= 0 && cursor.index <= usable_pairs(),
          "cannot resume at pair {} of epoch {}: an epoch has {} pairs, so the corpus or max_length has changed",
          cursor.index, cursor.epoch, usable_pairs());
  cursor_ = cursor;
}

void Batcher::permute(int64_t epoch) {
  permutation_ = usable_;
  PhiloxStream random(config_.seed, kShuffle, static_cast<uint32_t>(epoch));
  for (size_t i = permutation_.size() - 1; i > 0; --i) {
    std::swap(permutation_[i], permutation_[draw_below(random, static_cast<uint32_t>(i + 1))]);
  }
  permuted_epoch_ = epoch;
}

Batcher::Planned Batcher::measured(int32_t pair) const {
  return {pair, static_cast<int32_t>(corpus_.length(Side::source, pair) + 1),
          static_cast<int32_t>(corpus_.length(Side::target, pair) + 1)};
}

std::vector<Batcher::Planned> Batcher::plan() {
  std::vector<Planned> planned;
  int64_t source = 0, target = 0;
  while (config_.sentences == 0 || static_cast<int64_t>(planned.size()) < config_.sentences) {
    if (cursor_.index == usable_pairs()) {
      cursor_ = {cursor_.epoch + 1, 0};
    }
    if (permuted_epoch_ != cursor_.epoch) {
      permute(cursor_.epoch);
    }
    const Planned pair = measured(permutation_[static_cast<size_t>(cursor_.index)]);
    source += pair.source;
    target += pair.target;
    if (config_.sentences == 0 && std::max(source, target) > config_.tokens) {
      break;
    }
    planned.push_back(pair);
    ++cursor_.index;
  }
  return planned;
}

bool Batcher::fits(const HostBatch& micro_batch, const Planned& more, int64_t pairs) const {
  const auto room = [](int64_t limit, size_t used, int64_t wanted) {
    return limit == 0 || static_cast<int64_t>(used) + wanted <= limit;
  };
  return room(config_.capacity.source, micro_batch.source.tokens.size(), more.source) &&
         room(config_.capacity.target, micro_batch.target.tokens.size(), more.target) &&
         room(config_.capacity.pairs, micro_batch.pairs.size(), pairs);
}

void Batcher::add(HostBatch& micro_batch, int32_t pair) const {
  add_source(micro_batch.source, [&](auto& ids) { corpus_.append(Side::source, pair, ids); });
  add_target(micro_batch, [&](auto& ids) { corpus_.append(Side::target, pair, ids); });
  micro_batch.pairs.push_back(pair);
}

int64_t Batcher::parts_of(int64_t tokens) const {
  if (config_.part_tokens == 0) {
    return workers_;
  }
  const int64_t parts = kParts * std::max<int64_t>(1, tokens / (kParts * config_.part_tokens));
  // Few parts would be shared unevenly by other numbers of workers, so their number becomes a multiple of those.
  const bool even = parts % workers_ == 0 || parts >= 8 * workers_;
  return even ? parts : (parts + workers_ - 1) / workers_ * workers_;
}

// Adds this worker's parts, the pairs from each cut to the next, as micro-batches.
void Batcher::add_micro_batches(TrainStep& step, const std::vector<Planned>& planned,
                                const std::vector<size_t>& cuts) const {
  const auto tokens_of = [&](size_t begin, size_t end) {
    return std::accumulate(planned.begin() + static_cast<std::ptrdiff_t>(begin),
                           planned.begin() + static_cast<std::ptrdiff_t>(end), Planned{-1, 0, 0});
  };
  const auto note_part = [&](HostBatch& micro_batch) {
    for (HostSide* side : {&micro_batch.source, &micro_batch.target}) {
      side->parts.push_back(static_cast<int32_t>(side->tokens.size()));
    }
  };
  Planned before = tokens_of(0, cuts.front());
  for (size_t part = 0; part + 1 < cuts.size(); ++part) {
    const size_t begin = cuts[part], end = cuts[part + 1];
    for (size_t i = begin; i < end; ++i) {
      const bool first = i == begin;
      const Planned more = first ? tokens_of(begin, end) : planned[i];
      const bool same_micro_batch = !step.micro_batches.empty() && fits(step.micro_batches.back(), more,
                                                                        first ? static_cast<int64_t>(end - begin) : 1);
      if (!same_micro_batch) {
        step.micro_batches.emplace_back();
        step.micro_batches.back().source.first = static_cast<uint32_t>(before.source);
        step.micro_batches.back().target.first = static_cast<uint32_t>(before.target);
      }
      if (config_.part_tokens > 0 && (first || !same_micro_batch)) {
        note_part(step.micro_batches.back());
      }
      add(step.micro_batches.back(), planned[i].pair);
      before = before + planned[i];
    }
  }
  if (config_.part_tokens > 0) {
    std::ranges::for_each(step.micro_batches, note_part);
  }
}

std::vector<size_t> Batcher::cuts_of(const std::vector<Planned>& planned) const {
  std::vector<int64_t> sums{0};
  for (const Planned& pair : planned) {
    sums.push_back(sums.back() + pair.source + pair.target);
  }
  const int64_t parts = parts_of(sums.back());
  std::vector<size_t> cuts{cut_at(sums, parts * worker_ / workers_, parts)};
  for (int64_t part = parts * worker_ / workers_ + 1; part <= parts * (worker_ + 1) / workers_; ++part) {
    const size_t end = cut_at(sums, part, parts);
    Planned inside{-1, 0, 0};
    for (size_t i = cuts.back(); i < end; ++i) {
      inside = inside + planned[i];
      if (config_.part_tokens > 0 && i > cuts.back() && std::max(inside.source, inside.target) > kPartSide) {
        cuts.push_back(i);
        inside = planned[i];
      }
    }
    cuts.push_back(end);
  }
  return cuts;
}

TrainStep Batcher::next() {
  corpus_.require_unchanged();
  const std::vector<Planned> planned = plan();
  TrainStep step;
  step.pairs = static_cast<int64_t>(planned.size());
  step.after = cursor_;
  step.epochs_done =
      static_cast<double>(cursor_.epoch) + static_cast<double>(cursor_.index) / static_cast<double>(usable_pairs());
  for (const Planned& pair : planned) {
    step.source_tokens += pair.source;
    step.target_tokens += pair.target;
  }
  add_micro_batches(step, planned, cuts_of(planned));
  for (HostBatch& micro_batch : step.micro_batches) {
    sort_by_token(micro_batch.source);
    sort_by_token(micro_batch.target);
  }
  if (workers_ > 1 || config_.part_tokens > 0) {
    number_rows(step, planned);
  }
  return step;
}

void Batcher::number_rows(TrainStep& step, const std::vector<Planned>& planned) const {
  for (const Side side : {Side::source, Side::target}) {
    std::vector<int32_t> all{side == Side::source ? text::kEos : text::kBos};
    for (const Planned& pair : planned) {
      corpus_.append(side, pair.pair, all);
    }
    std::vector<int32_t> place(static_cast<size_t>(*std::max_element(all.begin(), all.end())) + 1, -1);
    for (const int32_t id : all) {
      place[static_cast<size_t>(id)] = 0;
    }
    std::vector<int32_t>& ids = side == Side::source ? step.source_ids : step.target_ids;
    for (size_t id = 0; id < place.size(); ++id) {
      if (place[id] == 0) {
        place[id] = static_cast<int32_t>(ids.size());
        ids.push_back(static_cast<int32_t>(id));
      }
    }
    for (HostBatch& micro_batch : step.micro_batches) {
      for (int32_t& id : (side == Side::source ? micro_batch.source : micro_batch.target).order_ids) {
        id = place[static_cast<size_t>(id)];
      }
    }
  }
}

HostBatch pack(const std::vector<std::vector<int32_t>>& source, const std::vector<std::vector<int32_t>>& target) {
  require(source.size() == target.size(), "{} source sentences and {} target sentences", source.size(), target.size());
  HostBatch batch;
  for (size_t i = 0; i < source.size(); ++i) {
    add_source(batch.source, [&](auto& ids) { ids.insert(ids.end(), source[i].begin(), source[i].end()); });
    add_target(batch, [&](auto& ids) { ids.insert(ids.end(), target[i].begin(), target[i].end()); });
    batch.pairs.push_back(static_cast<int64_t>(i));
  }
  sort_by_token(batch.source);
  sort_by_token(batch.target);
  return batch;
}

}  // namespace tandem::data
