// The target of a backward pass's parameter gradients, and how ranks that all-reduce them learn, while the pass
// still runs, which ones are complete.
#pragma once

#include <functional>

#include "core/side.h"
#include "tensor/view.h"

namespace tandem::model {

struct Gradients {
  Gradients(const View& all) : flat(all) {}  // NOLINT(google-explicit-constructor): most callers have only this

  View flat;               // G [1, flat]
  bool accumulate = true;  // false: the previous contents are overwritten

  // The rest is for several ranks. The embeddings' gradients come last in the backward pass, but touch few rows: if
  // these views G [n, D] are given, the gradients of looked-up rows are added to them and not to the table, and the ids
  // in the batch's token orders are their rows. The output projection's part of a shared table is then complete early.
  View source_rows = {};
  View target_rows = {};
  std::function<void(int64_t begin, int64_t end)> complete = {};  // flat[begin, end) will not change any more
  std::function<void(Side)> rows_complete = {};
};

}  // namespace tandem::model
