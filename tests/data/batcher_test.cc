#include "data/batcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "core/philox.h"
#include "data/corpus_of.h"
#include "temporary_directory.h"

namespace tandem::data {
namespace {

using testing::message_of;
using testing::Sentences;

// Random lengths from `shortest` to `longest`, ids from 4 to 99, and the pair's number as the first token of both
// sides.
struct Pairs {
  Sentences source, target;

  Pairs(int64_t count, int64_t shortest, int64_t longest) {
    PhiloxStream random(7, 1);
    for (int64_t i = 0; i < count; ++i) {
      for (Sentences* side : {&source, &target}) {
        std::vector<int32_t> ids(static_cast<size_t>(shortest) +
                                 random.below(static_cast<uint64_t>(longest - shortest + 1)));
        for (int32_t& id : ids) {
          id = static_cast<int32_t>(4 + random.below(96));
        }
        if (!ids.empty()) {
          ids[0] = static_cast<int32_t>(100 + i);
        }
        side->push_back(ids);
      }
    }
  }
};

std::vector<int64_t> pairs_of(const TrainStep& step) {
  std::vector<int64_t> pairs;
  for (const HostBatch& micro_batch : step.micro_batches) {
    pairs.insert(pairs.end(), micro_batch.pairs.begin(), micro_batch.pairs.end());
  }
  return pairs;
}

// Checks the order by token in a simple way.
void expect_order(const HostSide& side) {
  std::map<int32_t, std::vector<int32_t>> rows;
  for (size_t row = 0; row < side.tokens.size(); ++row) {
    rows[side.tokens[row]].push_back(static_cast<int32_t>(row));
  }
  std::vector<int32_t> order_rows, order_ids, order_starts{0};
  for (const auto& [id, places] : rows) {
    order_ids.push_back(id);
    order_rows.insert(order_rows.end(), places.begin(), places.end());
    order_starts.push_back(static_cast<int32_t>(order_rows.size()));
  }
  EXPECT_EQ(side.order_rows, order_rows);
  EXPECT_EQ(side.order_ids, order_ids);
  EXPECT_EQ(side.order_starts, order_starts);
}

TEST(Pack, by_hand) {
  const HostBatch batch = pack({{10, 11}, {}, {12}}, {{20}, {21, 22, 20}, {23, 24}});
  EXPECT_EQ(batch.source.tokens, (std::vector<int32_t>{10, 11, 1, 1, 12, 1}));
  EXPECT_EQ(batch.source.position, (std::vector<int32_t>{0, 1, 2, 0, 0, 1}));
  EXPECT_EQ(batch.source.starts, (std::vector<int32_t>{0, 3, 4, 6}));
  EXPECT_EQ(batch.source.longest, 3);
  EXPECT_EQ(batch.source.order_ids, (std::vector<int32_t>{1, 10, 11, 12}));
  EXPECT_EQ(batch.source.order_rows, (std::vector<int32_t>{2, 3, 5, 0, 1, 4}));
  EXPECT_EQ(batch.source.order_starts, (std::vector<int32_t>{0, 3, 4, 5, 6}));
  EXPECT_EQ(batch.target.tokens, (std::vector<int32_t>{2, 20, 2, 21, 22, 20, 2, 23, 24}));
  EXPECT_EQ(batch.target.position, (std::vector<int32_t>{0, 1, 0, 1, 2, 3, 0, 1, 2}));
  EXPECT_EQ(batch.target.starts, (std::vector<int32_t>{0, 2, 6, 9}));
  EXPECT_EQ(batch.target.longest, 4);
  EXPECT_EQ(batch.labels, (std::vector<int32_t>{20, 1, 21, 22, 20, 1, 23, 24, 1}));
  EXPECT_EQ(batch.pairs, (std::vector<int64_t>{0, 1, 2}));
  expect_order(batch.target);
  EXPECT_THROW(pack({{1}}, {}), Error);
  EXPECT_EQ(pack({}, {}).source.starts, std::vector<int32_t>{0});
}

// Every pair once an epoch, both sides within the budget, no step that the next pair would still have fitted into.
TEST(Batcher, an_epoch_has_every_pair_once) {
  const Pairs pairs(500, 0, 30);
  const Corpus corpus = testing::corpus_of(pairs.source, pairs.target);
  const BatchConfig config{.tokens = 200, .seed = 3};
  Batcher batcher(corpus, config);
  std::vector<int64_t> seen;
  std::vector<int64_t> next_source, next_target;  // tokens of each step's first pair
  std::vector<TrainStep> steps;
  while (seen.size() < 1500) {
    steps.push_back(batcher.next());
    const TrainStep& step = steps.back();
    ASSERT_EQ(step.micro_batches.size(), 1U);
    const HostBatch& micro_batch = step.micro_batches[0];
    EXPECT_LE(step.source_tokens, 200);
    EXPECT_LE(step.target_tokens, 200);
    EXPECT_EQ(step.source_tokens, static_cast<int64_t>(micro_batch.source.tokens.size()));
    EXPECT_EQ(step.target_tokens, static_cast<int64_t>(micro_batch.labels.size()));
    EXPECT_EQ(step.pairs, static_cast<int64_t>(micro_batch.pairs.size()));
    next_source.push_back(micro_batch.source.starts[1]);
    next_target.push_back(micro_batch.target.starts[1]);
    const std::vector<int64_t> now = pairs_of(step);
    seen.insert(seen.end(), now.begin(), now.end());
    EXPECT_NEAR(step.epochs_done, static_cast<double>(seen.size()) / 500, 1e-9);
    EXPECT_EQ(step.after.epoch * 500 + step.after.index, static_cast<int64_t>(seen.size()));
  }
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    EXPECT_TRUE(steps[i].source_tokens + next_source[i + 1] > 200 || steps[i].target_tokens + next_target[i + 1] > 200);
  }
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    epochs.emplace_back(seen.begin() + epoch * 500, seen.begin() + (epoch + 1) * 500);
    EXPECT_EQ(std::set<int64_t>(epochs.back().begin(), epochs.back().end()).size(), 500U);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_FALSE(std::is_sorted(epochs[0].begin(), epochs[0].end()));
}

TEST(Batcher, packs_what_the_corpus_holds) {
  const Pairs pairs(60, 0, 12);
  const Corpus corpus = testing::corpus_of(pairs.source, pairs.target);
  Batcher batcher(corpus, {.tokens = 150, .capacity = {40, 40}});
  for (int i = 0; i < 20; ++i) {
    for (const HostBatch& micro_batch : batcher.next().micro_batches) {
      Sentences source, target;
      for (const int64_t pair : micro_batch.pairs) {
        source.push_back(pairs.source[static_cast<size_t>(pair)]);
        target.push_back(pairs.target[static_cast<size_t>(pair)]);
      }
      const HostBatch expected = pack(source, target);
      EXPECT_EQ(micro_batch.source.tokens, expected.source.tokens);
      EXPECT_EQ(micro_batch.source.position, expected.source.position);
      EXPECT_EQ(micro_batch.source.starts, expected.source.starts);
      EXPECT_EQ(micro_batch.target.tokens, expected.target.tokens);
      EXPECT_EQ(micro_batch.target.longest, expected.target.longest);
      EXPECT_EQ(micro_batch.labels, expected.labels);
      expect_order(micro_batch.source);
      expect_order(micro_batch.target);
    }
  }
}

TEST(Batcher, a_step_crosses_the_end_of_an_epoch) {
  const Pairs pairs(7, 3, 3);
  const Corpus corpus = testing::corpus_of(pairs.source, pairs.target);
  Batcher batcher(corpus, {.tokens = 20});  // 5 pairs of 4 tokens
  const auto first = pairs_of(batcher.next());
  const TrainStep second = batcher.next();
  auto all = first;
  const auto more = pairs_of(second);
  ASSERT_EQ(more.size(), 5U);
  all.insert(all.end(), more.begin(), more.begin() + 2);
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 7U);
  EXPECT_EQ(second.after.epoch, 1);
  EXPECT_EQ(second.after.index, 3);
  EXPECT_NEAR(second.epochs_done, 10.0 / 7, 1e-12);
}

TEST(Batcher, a_step_may_be_larger_than_the_corpus) {
  const Pairs pairs(3, 2, 2);
  const Corpus corpus = testing::corpus_of(pairs.source, pairs.target);
  Batcher batcher(corpus, {.tokens = 31});
  const TrainStep step = batcher.next();
  EXPECT_EQ(step.pairs, 10);
  EXPECT_EQ(step.after.epoch, 3);
  EXPECT_EQ(step.after.index, 1);
}

TEST(Batcher, goes_on_from_a_cursor) {
  const Pairs pairs(80, 0, 20);
  const Corpus corpus = testing::corpus_of(pairs.source, pairs.target);
  const BatchConfig config{.tokens = 90, .capacity = {50, 50}};
  Batcher whole(corpus, config);
  std::vector<TrainStep> steps;
  for (int i = 0; i < 40; ++i) {
    steps.push_back(whole.next());
  }
  for (size_t start : {0U, 1U, 7U, 20U, 38U}) {
    Batcher resumed(corpus, config);
    resumed.seek(steps[start].after);
    const TrainStep step = resumed.next();
    const TrainStep& expected = steps[start + 1];
    ASSERT_EQ(step.micro_batches.size(), expected.micro_batches.size());
    EXPECT_EQ(pairs_of(step), pairs_of(expected));
    EXPECT_EQ(step.micro_batches.back().source.tokens, expected.micro_batches.back().source.tokens);
    EXPECT_EQ(step.micro_batches.back().target.first, expected.micro_batches.back().target.first);
    EXPECT_EQ(step.after.epoch, expected.after.epoch);
    EXPECT_EQ(step.after.index, expected.after.index);
  }
  Batcher other(corpus, config);
  EXPECT_NE(message_of([&] { other.seek({0, 81}); }).find("80"), std::string::npos);
  EXPECT_NE(message_of([&] { other.seek({-1, 0}); }), "");
}

// The pairs and their order do not depend on who works on them; `first` is a micro-batch's offset in the whole step.
TEST(Batcher, workers_and_micro_batches_share_the_same_steps) {
  const Pairs pairs(300, 0, 25);
  const Corpus corpus = testing::corpus_of(pairs.source, pairs.target);
  for (const int workers : {1, 2, 3, 4, 7}) {
    for (const int64_t micro : {int64_t{0}, int64_t{26}, int64_t{60}, int64_t{500}}) {
      Batcher alone(corpus, {.tokens = 300});
      std::vector<Batcher> group;
      for (int worker = 0; worker < workers; ++worker) {
        group.emplace_back(corpus, BatchConfig{.tokens = 300, .capacity = {micro, micro}}, worker, workers);
      }
      for (int i = 0; i < 12; ++i) {
        const TrainStep expected = alone.next();
        const HostBatch& whole = expected.micro_batches[0];
        std::vector<int32_t> source, target;
        std::vector<int64_t> together;
        int64_t least = INT64_MAX, most = 0;
        for (Batcher& batcher : group) {
          const TrainStep part = batcher.next();
          EXPECT_EQ(part.target_tokens, expected.target_tokens);
          EXPECT_EQ(part.source_tokens, expected.source_tokens);
          EXPECT_EQ(part.pairs, expected.pairs);
          EXPECT_EQ(part.after.index, expected.after.index);
          EXPECT_TRUE(micro > 0 || part.micro_batches.size() <= 1);
          int64_t cost = 0;
          for (const HostBatch& micro_batch : part.micro_batches) {
            EXPECT_EQ(micro_batch.source.first, source.size());
            EXPECT_EQ(micro_batch.target.first, target.size());
            EXPECT_FALSE(micro_batch.pairs.empty());
            EXPECT_TRUE(micro == 0 || static_cast<int64_t>(micro_batch.source.tokens.size()) <= micro);
            EXPECT_TRUE(micro == 0 || static_cast<int64_t>(micro_batch.target.tokens.size()) <= micro);
            source.insert(source.end(), micro_batch.source.tokens.begin(), micro_batch.source.tokens.end());
            target.insert(target.end(), micro_batch.target.tokens.begin(), micro_batch.target.tokens.end());
            together.insert(together.end(), micro_batch.pairs.begin(), micro_batch.pairs.end());
            cost += static_cast<int64_t>(micro_batch.source.tokens.size() + micro_batch.target.tokens.size());
          }
          least = std::min(least, cost);
          most = std::max(most, cost);
        }
        EXPECT_EQ(together, whole.pairs);
        EXPECT_EQ(source, whole.source.tokens);
        EXPECT_EQ(target, whole.target.tokens);
        EXPECT_LE(most - least, 2 * 52) << "parts differ by more than two of the longest pairs";
      }
    }
  }
}

// The tokens of every part of a step, in order.
using Parts = std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>>;

void append_parts(Parts& parts, const TrainStep& step) {
  for (const HostBatch& micro_batch : step.micro_batches) {
    const HostSide &source = micro_batch.source, &target = micro_batch.target;
    ASSERT_EQ(source.parts.size(), target.parts.size());
    ASSERT_GE(source.parts.size(), 2U);
    for (const HostSide* side : {&source, &target}) {
      EXPECT_EQ(side->parts.front(), 0);
      EXPECT_EQ(side->parts.back(), static_cast<int32_t>(side->tokens.size()));
    }
    for (size_t i = 0; i + 1 < source.parts.size(); ++i) {
      EXPECT_LT(source.parts[i], source.parts[i + 1]);
      EXPECT_LT(target.parts[i], target.parts[i + 1]);
      parts.push_back({{source.tokens.begin() + source.parts[i], source.tokens.begin() + source.parts[i + 1]},
                       {target.tokens.begin() + target.parts[i], target.tokens.begin() + target.parts[i + 1]}});
    }
  }
}

// A step has the same parts for any number of workers and micro-batches, and the workers' shares are even.
TEST(Batcher, parts_do_not_depend_on_workers_and_micro_batches) {
  const Pairs pairs(1500, 0, 10);
  const Corpus corpus = testing::corpus_of(pairs.source, pairs.target);
  for (const int64_t part_tokens : {40, 100, 100000}) {
    Parts alone;
    for (const int workers : {1, 2, 3, 4, 6, 12, 7}) {
      for (const int64_t micro : {0, 200, 400}) {
        const BatchConfig config{.tokens = 1500, .capacity = {micro, micro}, .part_tokens = part_tokens};
        std::vector<Batcher> group;
        for (int worker = 0; worker < workers; ++worker) {
          group.emplace_back(corpus, config, worker, workers);
        }
        Parts found;
        for (int i = 0; i < 5; ++i) {
          int64_t most = 0, all = 0;
          for (Batcher& batcher : group) {
            const TrainStep step = batcher.next();
            append_parts(found, step);
            int64_t tokens = 0;
            for (const HostBatch& micro_batch : step.micro_batches) {
              EXPECT_TRUE(micro == 0 || static_cast<int64_t>(micro_batch.source.tokens.size()) <= micro);
              EXPECT_TRUE(micro == 0 || static_cast<int64_t>(micro_batch.target.tokens.size()) <= micro);
              tokens += static_cast<int64_t>(micro_batch.source.tokens.size() + micro_batch.target.tokens.size());
            }
            EXPECT_FALSE(step.source_ids.empty());
            most = std::max(most, tokens);
            all = step.source_tokens + step.target_tokens;
          }
          EXPECT_LE(static_cast<double>(most), 1.15 * static_cast<double>(all) / workers + 2 * 22)
              << workers << " workers, parts of " << part_tokens;
        }
        if (alone.empty()) {
          alone = found;
          const size_t wanted = part_tokens == 40 ? 72 : part_tokens == 100 ? 24 : 12;
          EXPECT_LE(found.size(), 5 * wanted);
          EXPECT_GE(found.size(), 5 * wanted - 10) << "a part is empty where a long pair lies across it";
        } else if (workers != 7 || part_tokens == 40) {
          EXPECT_TRUE(found == alone) << workers << " workers, micro-batches of " << micro << ", parts of "
                                      << part_tokens;
        } else {  // few parts, which seven could not share evenly
          EXPECT_FALSE(found == alone);
        }
      }
    }
  }
}

// Steps whose parts would be just larger than the smallest micro-batches.
TEST(Batcher, rounds_of_256_tokens_hold_whole_parts) {
  const Pairs pairs(3000, 0, 10);
  const Corpus corpus = testing::corpus_of(pairs.source, pairs.target);
  Parts alone;
  for (const int workers : {1, 2, 3, 4}) {
    for (const int64_t micro : {0, 256, 300}) {
      Parts found;
      for (int worker = 0; worker < workers; ++worker) {
        Batcher batcher(corpus, {.tokens = 3050, .capacity = {micro, micro}, .part_tokens = 256}, worker, workers);
        append_parts(found, batcher.next());
      }
      alone = alone.empty() ? found : alone;
      EXPECT_GT(alone.size(), 12U) << "some of the 12 are cut again";
      EXPECT_TRUE(found == alone) << workers << " workers, micro-batches of " << micro;
      for (const auto& [source, target] : found) {
        EXPECT_LE(std::max(source.size(), target.size()), 256U);
      }
    }
  }
}

TEST(Batcher, more_workers_than_pairs) {
  const Pairs pairs(2, 5, 5);
  const Corpus corpus = testing::corpus_of(pairs.source, pairs.target);
  int64_t found = 0;
  for (int worker = 0; worker < 5; ++worker) {
    Batcher batcher(corpus, {.tokens = 12}, worker, 5);
    const TrainStep step = batcher.next();
    EXPECT_EQ(step.pairs, 2);
    EXPECT_EQ(step.target_tokens, 12);
    found += static_cast<int64_t>(pairs_of(step).size());
  }
  EXPECT_EQ(found, 2);
}

TEST(Batcher, sentence_budget) {
  const Pairs pairs(50, 0, 20);
  const Corpus corpus = testing::corpus_of(pairs.source, pairs.target);
  Batcher batcher(corpus, {.tokens = 1, .sentences = 12, .capacity = {30, 30}});
  for (int i = 0; i < 10; ++i) {
    const TrainStep step = batcher.next();
    EXPECT_EQ(step.pairs, 12);
    EXPECT_EQ(pairs_of(step).size(), 12U);
    EXPECT_GT(step.micro_batches.size(), 1U);
  }
}

TEST(Batcher, seed_and_epoch_make_the_order) {
  const Pairs pairs(100, 1, 5);
  const Corpus corpus = testing::corpus_of(pairs.source, pairs.target);
  const auto order = [&](uint64_t seed, int64_t epoch) {
    Batcher batcher(corpus, {.sentences = 100, .seed = seed});
    batcher.seek({epoch, 0});
    return pairs_of(batcher.next());
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
}

TEST(Batcher, every_pair_is_first_equally_often) {
  const Pairs pairs(10, 1, 5);
  const Corpus corpus = testing::corpus_of(pairs.source, pairs.target);
  Batcher batcher(corpus, {.sentences = 1});
  std::map<int64_t, int> counts;
  for (int64_t epoch = 0; epoch < 5000; ++epoch) {
    batcher.seek({epoch, 0});
    ++counts[pairs_of(batcher.next()).at(0)];
  }
  for (int64_t pair = 0; pair < 10; ++pair) {
    EXPECT_NEAR(counts[pair], 500, 110) << "five standard deviations";
  }
}

TEST(Batcher, long_pairs_are_left_out_and_counted) {
  Sentences source(10, std::vector<int32_t>(4, 9)), target(10, std::vector<int32_t>(4, 9));
  source[3].resize(10, 9);  // 11 tokens with the end mark
  target[7].resize(11, 9);
  source[5].resize(9, 9);
  const Corpus corpus = testing::corpus_of(source, target);
  Batcher batcher(corpus, {.sentences = 8, .max_length = 10});
  EXPECT_EQ(batcher.too_long(), 2);
  EXPECT_EQ(batcher.usable_pairs(), 8);
  const auto seen = pairs_of(batcher.next());
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()), (std::set<int64_t>{0, 1, 2, 4, 5, 6, 8, 9}));
}

TEST(Batcher, says_what_cannot_work) {
  Sentences source(3, std::vector<int32_t>(4, 9)), target(3, std::vector<int32_t>(4, 9));
  target[1].resize(20, 9);
  const Corpus corpus = testing::corpus_of(source, target);
  const auto message = [&](const BatchConfig& config) { return message_of([&] { Batcher(corpus, config); }); };
  EXPECT_EQ(message({.tokens = 20}),
            "training pair 1 has 21 tokens but a step holds only 20: raise batch.tokens or "
            "lower max_length");
  EXPECT_NE(message({.tokens = 100, .capacity = {20, 20}}).find("micro_batch"), std::string::npos);
  EXPECT_NE(message({.max_length = 4}).find("none of the 3"), std::string::npos);
  EXPECT_EQ(message({.tokens = 21}), "");
  EXPECT_EQ(message({.tokens = 5, .max_length = 5}), "");
  EXPECT_NE(message({.tokens = 0}), "");
  EXPECT_NE(message({.max_length = 0}), "");
  EXPECT_NE(message({.capacity = {-1, -1}}), "");
  EXPECT_NE(message({.sentences = int64_t{1} << 40}), "");
  EXPECT_THROW(Batcher(corpus, {}, 2, 2), Error);
}

// The all-reduce of an embedding's gradient has one row for each id that occurs anywhere in the step.
TEST(Batcher, WorkersNumberTheRowsOfTheWholeStep) {
  const Pairs pairs(300, 1, 12);
  const Corpus corpus = testing::corpus_of(pairs.source, pairs.target);
  const BatchConfig config{.tokens = 200, .max_length = 20, .capacity = {40, 40, 0}};
  std::vector<Batcher> workers;
  for (int worker = 0; worker < 3; ++worker) {
    workers.emplace_back(corpus, config, worker, 3);
  }
  Batcher alone(corpus, config);
  for (int i = 0; i < 5; ++i) {
    const TrainStep whole = alone.next();
    EXPECT_TRUE(whole.source_ids.empty());
    std::set<int32_t> source, target;
    for (const HostBatch& micro_batch : whole.micro_batches) {
      source.insert(micro_batch.source.tokens.begin(), micro_batch.source.tokens.end());
      target.insert(micro_batch.target.tokens.begin(), micro_batch.target.tokens.end());
    }
    for (Batcher& worker : workers) {
      const TrainStep part = worker.next();
      EXPECT_EQ(part.source_ids, std::vector<int32_t>(source.begin(), source.end()));
      EXPECT_EQ(part.target_ids, std::vector<int32_t>(target.begin(), target.end()));
      for (const HostBatch& micro_batch : part.micro_batches) {
        for (size_t run = 0; run < micro_batch.source.order_ids.size(); ++run) {
          const auto row = static_cast<size_t>(
              micro_batch.source.order_rows[static_cast<size_t>(micro_batch.source.order_starts[run])]);
          EXPECT_EQ(part.source_ids[static_cast<size_t>(micro_batch.source.order_ids[run])],
                    micro_batch.source.tokens[row]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::data
