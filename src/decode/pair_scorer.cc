#include "decode/pair_scorer.h"

#include <algorithm>

#include "decode/batches.h"
#include "decode/packed_lines.h"
#include "text/subwords.h"

namespace tandem::decode {

PairScorer::PairScorer(backend::Backend& backend, model::Transformer& model, const nn::Weights& weights)
    : backend_(backend),
      model_(model),
      weights_(weights),
      arena_([&backend](size_t bytes) { return backend.allocate(bytes); }) {}

std::vector<backend::LossTotals> PairScorer::totals_of(std::span<const std::vector<int32_t>> sources,
                                                       std::span<const std::vector<int32_t>> targets,
                                                       std::span<const size_t> chosen) {
  PackedLines source, target;
  std::vector<int32_t> labels;
  for (const size_t i : chosen) {
    source.add_source(sources[i]);
    target.add_target(targets[i]);
    labels.insert(labels.end(), targets[i].begin(), targets[i].end());
    labels.push_back(text::kEos);
  }
  arena_.reset();
  model::Batch batch;
  batch.source = source.upload(backend_, arena_);
  batch.target = target.upload(backend_, arena_);
  batch.labels = arena_.take(DType::i32, 1, static_cast<int64_t>(labels.size()));
  backend_.upload(batch.labels, labels.data());
  const View words = arena_.take(DType::i32, 1, static_cast<int64_t>(chosen.size() * sizeof(backend::LossTotals) / 4));
  backend_.fill_zero(words);
  auto* totals_there = static_cast<backend::LossTotals*>(words.data);
  const View logits = model_.logits(weights_, batch, arena_);
  int64_t first = 0;
  for (const size_t i : chosen) {
    const auto rows = static_cast<int64_t>(targets[i].size()) + 1;
    backend_.run(backend::op::CrossEntropy{.totals = totals_there++,
                                           .logits = logits.slice_rows(first, rows),
                                           .labels = batch.labels.slice_cols(first, rows)});
    first += rows;
  }
  std::vector<backend::LossTotals> totals(chosen.size());
  backend_.download(totals.data(), words);
  return totals;
}

std::vector<PairScore> PairScorer::score(std::span<const std::vector<int32_t>> sources,
                                         std::span<const std::vector<int32_t>> targets, const CallOptions& options) {
  check(options);
  require(sources.size() == targets.size(), "{} sources and {} targets: each source needs its target", sources.size(),
          targets.size());
  const auto limit = static_cast<size_t>(model_.config().max_length);
  std::vector<size_t> fitting;
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (std::max(sources[i].size(), targets[i].size()) < limit) {
      fitting.push_back(i);
      sizes.push_back(static_cast<int64_t>(std::max(sources[i].size(), targets[i].size())));
    }
  }
  CallOptions bounded = options;
  if (bounded.batch_tokens == 0) {
    bounded.batch_tokens = backend_.traits().loss_rows;  // because all target tokens of a batch have logits
  }
  std::vector<PairScore> scores(sources.size());
  for_each_batch(sizes, bounded, backend_.traits().decode_sentences, &most_sentences_,
                 [&](std::span<const size_t> batch) {
                   std::vector<size_t> chosen;
                   for (const size_t i : batch) {
                     chosen.push_back(fitting[i]);
                   }
                   std::vector<backend::LossTotals> totals;
                   try {
                     totals = totals_of(sources, targets, chosen);
                   } catch (const backend::OutOfMemory&) {
                     arena_.clear();
                     throw;
                   }
                   for (size_t i = 0; i < chosen.size(); ++i) {
                     scores[chosen[i]] = {.log_probability = -totals[i].nll,
                                          .tokens = static_cast<int64_t>(totals[i].tokens),
                                          .correct = static_cast<int64_t>(totals[i].correct)};
                   }
                 });
  return scores;
}

}  // namespace tandem::decode
