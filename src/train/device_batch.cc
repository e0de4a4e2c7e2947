#include "train/device_batch.h"

namespace tandem {

namespace {

View upload_ints(Backend& backend, Arena& arena, const std::vector<int32_t>& values) {
  const View view = arena.take(DType::i32, 1, static_cast<int64_t>(values.size()));
  backend.upload(view, values.data());
  return view;
}

}  // namespace

PackedSide upload_side(Backend& backend, Arena& arena, const HostSide& host) {
  PackedSide side;
  side.tokens = upload_ints(backend, arena, host.tokens);
  side.position = upload_ints(backend, arena, host.position);
  side.starts = upload_ints(backend, arena, host.starts);
  side.longest = host.longest;
  if (!host.order_rows.empty()) {
    side.order.rows = upload_ints(backend, arena, host.order_rows);
    side.order.ids = upload_ints(backend, arena, host.order_ids);
    side.order.starts = upload_ints(backend, arena, host.order_starts);
  }
  side.parts = host.parts;
  return side;
}

Batch upload_batch(Backend& backend, Arena& arena, const HostBatch& host, const StepState* state) {
  Batch batch;
  batch.source = upload_side(backend, arena, host.source);
  batch.target = upload_side(backend, arena, host.target);
  batch.labels = upload_ints(backend, arena, host.labels);
  batch.state = state;
  return batch;
}

}  // namespace tandem
