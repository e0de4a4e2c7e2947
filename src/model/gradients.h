// Where a backward pass adds or writes the gradients of parameters, and how ranks that add theirs up learn, while the
// pass goes on, what is complete.
#pragma once

#include <functional>

#include "core/side.h"
#include "tensor/view.h"

namespace tandem::model {

struct Gradients {
  Gradients(const View& all) : flat(all) {}  // NOLINT(google-explicit-constructor): most callers have only this

  View flat;               // G [1, flat]
  bool accumulate = true;  // false: what it holds is overwritten

  // The rest is for several ranks. An embedding's table is looked up last in the backward pass, but its rows are few:
  // where these are given, G [n, D], the looked-up rows' gradients are added here and not to the table, and the batch's
  // token orders count these rows. The output projection's part of a shared table is then complete early.
  View source_rows = {};
  View target_rows = {};
  std::function<void(int64_t begin, int64_t end)> complete = {};  // flat[begin, end) will not change any more
  std::function<void(Side)> rows_complete = {};
};

}  // namespace tandem::model
