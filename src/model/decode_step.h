// One position for each of R hypotheses, as Transformer::decode reads it.
#pragma once

#include <span>

#include "tensor/view.h"

namespace tandem::model {

struct DecodeStep {
  View tokens;                   // i32 [1, R]: the last piece of each hypothesis
  View position;                 // i32 [1, R]
  std::span<const View> keys;    // one per layer, C [cached, D]
  std::span<const View> values;  // one per layer, C [cached, D]
  int64_t write_row = 0;         // this step's keys and values go to the rows [write_row, write_row + R)
  View self_index;               // i32 [R, longest]: each hypothesis's cache rows, this step's included
  View self_length;              // i32 [1, R]
  View memory;                   // encode()'s result
  View memory_first;             // i32 [1, R]: first row of the hypothesis's sentence in memory
  View memory_length;            // i32 [1, R]
};

}  // namespace tandem::model
