// A training corpus made of given sentences.
#pragma once

#include <vector>

#include "data/corpus.h"
#include "temporary_directory.h"

namespace tandem::testing {

using Sentences = std::vector<std::vector<int32_t>>;

inline data::Corpus corpus_of(const Sentences& source, const Sentences& target) {
  const TemporaryDirectory directory;  // the open file outlives the name
  const auto path = directory / "train.corpus";
  data::CorpusWriter writer(path, 30000, 30000);
  for (size_t i = 0; i < source.size(); ++i) {
    writer.add(source[i], target[i]);
  }
  writer.finish();
  return data::Corpus::open(path);
}

}  // namespace tandem::testing
