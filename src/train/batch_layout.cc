#include "train/batch_layout.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "text/subwords.h"

namespace tandem::train {

namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

View ints(void* block, Memory memory, size_t place, int64_t count) {
  return make_view(static_cast<std::byte*>(block) + place, DType::i32, 1, count, memory);
}

// The values, then `filler` up to `count` numbers.
void write_ints(std::span<std::byte> block, size_t place, const std::vector<int32_t>& values, int64_t count,
                int32_t filler) {
  require(static_cast<int64_t>(values.size()) <= count, "{} numbers for room of {}", values.size(), count);
  auto* to = reinterpret_cast<int32_t*>(block.data() + place);
  std::fill(std::copy(values.begin(), values.end(), to), to + count, filler);
}

}  // namespace

BatchLayout::BatchLayout(const data::MicroBatchCapacity& capacity)
    : capacity_(capacity), bytes_(aligned(sizeof(StepInput))) {
  require(capacity.source > 0 && capacity.target > 0 && capacity.pairs > 0,
          "a micro-batch of {} + {} tokens and {} pairs has no fixed shape", capacity.source, capacity.target,
          capacity.pairs);
}

BatchLayout::BatchLayout(const data::MicroBatchCapacity& capacity, int64_t longest, const model::ModelConfig& model,
                         bool group)
    : BatchLayout(capacity) {
  source_ = place_side(capacity.source, std::min(capacity.source, model.source_vocabulary), longest);
  target_ = place_side(capacity.target, std::min(capacity.target, model.target_vocabulary), longest);
  labels_ = place(capacity.target);
  if (group) {
    place_step_ids(model.source_vocabulary, model.target_vocabulary);
  }
}

BatchLayout BatchLayout::exactly_for(const data::HostBatch& batch, const data::TrainStep& step) {
  const auto at_least_one = [](int64_t count) { return std::max<int64_t>(count, 1); };
  const auto count = [](const std::vector<int32_t>& values) { return static_cast<int64_t>(values.size()); };
  BatchLayout layout(data::MicroBatchCapacity{at_least_one(count(batch.source.tokens)),
                                              at_least_one(count(batch.target.tokens)),
                                              at_least_one(static_cast<int64_t>(batch.pairs.size()))});
  const auto place = [&](const data::HostSide& side, int64_t tokens) {
    return layout.place_side(tokens, count(side.order_ids), at_least_one(side.longest));
  };
  layout.source_ = place(batch.source, layout.capacity_.source);
  layout.target_ = place(batch.target, layout.capacity_.target);
  layout.labels_ = layout.place(layout.capacity_.target);
  layout.place_step_ids(count(step.source_ids), count(step.target_ids));
  return layout;
}

void BatchLayout::place_step_ids(int64_t source, int64_t target) {
  source_ids_ = source;
  target_ids_ = target;
  source_ids_place_ = place(source);
  target_ids_place_ = place(target);
}

size_t BatchLayout::place(int64_t count) {
  const size_t begin = bytes_;
  bytes_ += aligned(static_cast<size_t>(count) * sizeof(int32_t));
  return begin;
}

BatchLayout::SidePlaces BatchLayout::place_side(int64_t tokens, int64_t runs, int64_t longest) {
  SidePlaces places{};
  places.capacity = tokens;
  places.runs = runs;
  places.longest = longest;
  places.tokens = place(tokens);
  places.position = place(tokens);
  places.starts = place(capacity_.pairs + 1);
  places.rows = place(tokens);
  places.ids = place(places.runs);
  places.run_starts = place(places.runs + 1);
  return places;
}

bool BatchLayout::holds(const data::HostBatch& batch) const {
  return static_cast<int64_t>(batch.source.tokens.size()) <= capacity_.source &&
         static_cast<int64_t>(batch.target.tokens.size()) <= capacity_.target &&
         static_cast<int64_t>(batch.pairs.size()) <= capacity_.pairs;
}

void BatchLayout::write_side(std::span<std::byte> block, const SidePlaces& places, const data::HostSide& side) const {
  require(side.longest <= places.longest, "a sentence of {} tokens where {} is the limit", side.longest,
          places.longest);
  write_ints(block, places.tokens, side.tokens, places.capacity, text::kPad);
  write_ints(block, places.position, side.position, places.capacity, 0);
  write_ints(block, places.starts, side.starts, capacity_.pairs + 1, side.starts.back());
  write_ints(block, places.rows, side.order_rows, places.capacity, 0);
  write_ints(block, places.ids, side.order_ids, places.runs, 0);
  write_ints(block, places.run_starts, side.order_starts, places.runs + 1, side.order_starts.back());
}

void BatchLayout::write(std::span<std::byte> block, const data::HostBatch& batch, const data::TrainStep& step,
                        const StepInput& input) const {
  require(block.size() >= bytes_, "a block of {} bytes for a batch of {}", block.size(), bytes_);
  std::memcpy(block.data(), &input, sizeof input);
  write_side(block, source_, batch.source);
  write_side(block, target_, batch.target);
  write_ints(block, labels_, batch.labels, capacity_.target, -1);
  write_ints(block, source_ids_place_, step.source_ids, source_ids_, -1);
  write_ints(block, target_ids_place_, step.target_ids, target_ids_, -1);
}

View BatchLayout::step_ids(void* block, Memory memory, Side side, int64_t count) const {
  require(count <= (side == Side::source ? source_ids_ : target_ids_), "{} ids of a smaller vocabulary", count);
  return ints(block, memory, side == Side::source ? source_ids_place_ : target_ids_place_, count);
}

model::PackedSide BatchLayout::side(void* block, Memory memory, const SidePlaces& places,
                                    backend::RowParts parts) const {
  return {.tokens = ints(block, memory, places.tokens, places.capacity),
          .position = ints(block, memory, places.position, places.capacity),
          .starts = ints(block, memory, places.starts, capacity_.pairs + 1),
          .longest = places.longest,
          .order = {ints(block, memory, places.rows, places.capacity), ints(block, memory, places.ids, places.runs),
                    ints(block, memory, places.run_starts, places.runs + 1)},
          .parts = parts};
}

model::Batch BatchLayout::batch(void* block, Memory memory, const data::HostBatch& host) const {
  return {.source = side(block, memory, source_, host.source.parts),
          .target = side(block, memory, target_, host.target.parts),
          .labels = ints(block, memory, labels_, capacity_.target),
          .state = &static_cast<const StepInput*>(block)->state};
}

}  // namespace tandem::train
