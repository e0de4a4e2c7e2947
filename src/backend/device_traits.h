// The preferences and the limits of a kind of device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/view.h"

namespace tandem::backend {

struct DeviceTraits {
  bool replays = false;             // work of a fixed capacity is recorded and replayed; false: true counts are used
  bool f32 = true, bf16 = false;    // whether the hardware computes in this type
  int64_t loss_rows = 1024;         // rows of logits [rows, V] to hold at one time
  int64_t spare_logit_rows = 0;     // extra rows of logits that ProjectedLoss needs
  int64_t decode_sentences = 64;    // sentences to decode together
  int64_t decode_rows_step = 1;     // a step of decoding should have a multiple of this many rows
  int64_t widest = INT64_MAX;       // most columns of a norm
  int64_t widest_head = INT64_MAX;  // most columns of an attention head
  // The rows of a micro-batch are worked on in groups of `row_group`: at most `most_groups` of them, with at most
  // `most_group_columns` columns in all groups together.
  int64_t row_group = 1, most_groups = INT64_MAX, most_group_columns = INT64_MAX;

  bool computes(DType type) const { return type == DType::f32 ? f32 : type == DType::bf16 && bf16; }
  int64_t decode_rows(int64_t needed) const {
    return (needed + decode_rows_step - 1) / decode_rows_step * decode_rows_step;
  }
  // The most rows of this width that a micro-batch may have, memory aside.
  int64_t most_rows(int64_t width) const { return std::min(most_group_columns / width, most_groups) * row_group; }
  // Fails if the ops cannot take rows of this width, or so many heads of it.
  void require_sizes(int64_t width, int64_t heads) const {
    require(width <= widest, "a model of width {} is too wide for a GPU: at most {} are possible", width, widest);
    require(width / heads <= widest_head,
            "{} heads of a model of width {} have {} columns each, and on a GPU at most {} are possible: give it more "
            "heads (model.heads), or use device=cpu",
            heads, width, width / heads, widest_head);
  }
};

}  // namespace tandem::backend
