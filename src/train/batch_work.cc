#include "train/batch_work.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "text/subwords.h"

namespace tandem::train {

namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t count_of(const std::vector<int32_t>& values) { return static_cast<int64_t>(values.size()); }

// The smallest of a few sizes that holds `ids`, so that a few recordings serve all steps.
int64_t ids_capacity(int64_t ids, int64_t vocabulary) {
  int64_t capacity = vocabulary;
  while (capacity / 2 >= std::max<int64_t>(ids, vocabulary / 8)) {
    capacity /= 2;
  }
  return ids == 0 ? 0 : capacity;
}

}  // namespace

// ---- the layout of a block

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
    source_ids_ = place(model.source_vocabulary);
    target_ids_ = place(model.target_vocabulary);
  }
}

BatchLayout BatchLayout::exactly_for(const data::HostBatch& batch, const data::TrainStep& step) {
  const auto at_least_one = [](int64_t count) { return std::max<int64_t>(count, 1); };
  BatchLayout layout(data::MicroBatchCapacity{at_least_one(count_of(batch.source.tokens)),
                                              at_least_one(count_of(batch.target.tokens)),
                                              at_least_one(static_cast<int64_t>(batch.pairs.size()))});
  const auto place = [&](const data::HostSide& side, int64_t tokens) {
    return layout.place_side(tokens, count_of(side.order_ids), at_least_one(side.longest));
  };
  layout.source_ = place(batch.source, layout.capacity_.source);
  layout.target_ = place(batch.target, layout.capacity_.target);
  layout.labels_ = layout.place(layout.capacity_.target);
  layout.source_ids_ = layout.place(count_of(step.source_ids));
  layout.target_ids_ = layout.place(count_of(step.target_ids));
  return layout;
}

BatchLayout::Numbers BatchLayout::place(int64_t count) {
  const Numbers numbers{bytes_, count};
  bytes_ += aligned(static_cast<size_t>(count) * sizeof(int32_t));
  return numbers;
}

BatchLayout::SideNumbers BatchLayout::place_side(int64_t tokens, int64_t runs, int64_t longest) {
  return {.tokens = place(tokens),
          .position = place(tokens),
          .starts = place(capacity_.pairs + 1),
          .rows = place(tokens),
          .ids = place(runs),
          .run_starts = place(runs + 1),
          .longest = longest};
}

bool BatchLayout::holds(const data::HostBatch& batch) const {
  return count_of(batch.source.tokens) <= capacity_.source && count_of(batch.target.tokens) <= capacity_.target &&
         static_cast<int64_t>(batch.pairs.size()) <= capacity_.pairs;
}

void BatchLayout::write(std::span<std::byte> block, const data::HostBatch& batch, const data::TrainStep& step,
                        const StepInput& input) const {
  require(block.size() >= bytes_, "a block of {} bytes for a batch of {}", block.size(), bytes_);
  std::memcpy(block.data(), &input, sizeof input);
  const auto write = [block](const Numbers& numbers, const std::vector<int32_t>& values, int32_t filler) {
    require(count_of(values) <= numbers.count, "{} numbers; there is room for {}", values.size(), numbers.count);
    auto* to = reinterpret_cast<int32_t*>(block.data() + numbers.begin);
    std::fill(std::copy(values.begin(), values.end(), to), to + numbers.count, filler);
  };
  for (const auto& [numbers, side] : {std::pair(&source_, &batch.source), std::pair(&target_, &batch.target)}) {
    require(side->longest <= numbers->longest, "a sentence of {} tokens; the limit is {}", side->longest,
            numbers->longest);
    write(numbers->tokens, side->tokens, text::kPad);
    write(numbers->position, side->position, 0);
    write(numbers->starts, side->starts, side->starts.back());
    write(numbers->rows, side->order_rows, 0);
    write(numbers->ids, side->order_ids, 0);
    write(numbers->run_starts, side->order_starts, side->order_starts.back());
  }
  write(labels_, batch.labels, -1);
  write(source_ids_, step.source_ids, -1);
  write(target_ids_, step.target_ids, -1);
}

model::Batch BatchLayout::batch(void* block, Memory memory, const data::HostBatch& host) const {
  const auto view = [&](const Numbers& numbers) {
    return make_view(static_cast<std::byte*>(block) + numbers.begin, DType::i32, 1, numbers.count, memory);
  };
  const auto side = [&](const SideNumbers& numbers, const backend::RowParts& parts) {
    return model::PackedSide{.tokens = view(numbers.tokens),
                             .position = view(numbers.position),
                             .starts = view(numbers.starts),
                             .longest = numbers.longest,
                             .order = {view(numbers.rows), view(numbers.ids), view(numbers.run_starts)},
                             .parts = parts};
  };
  return {.source = side(source_, host.source.parts),
          .target = side(target_, host.target.parts),
          .labels = view(labels_),
          .state = &static_cast<const StepInput*>(block)->state};
}

StepIds BatchLayout::step_ids(void* block, Memory memory, const IdCounts& counts) const {
  const auto view = [&](const Numbers& numbers, int64_t count) {
    require(count <= numbers.count, "{} ids of a smaller vocabulary", count);
    return make_view(static_cast<std::byte*>(block) + numbers.begin, DType::i32, 1, count, memory);
  };
  return {view(source_ids_, counts.source), view(target_ids_, counts.target)};
}

// ---- the work

bool has_fixed_capacities(const backend::Backend& backend) { return backend.traits().replays; }

IdCounts ids_in_advance(const backend::Backend& backend, const model::ModelConfig& model) {
  return has_fixed_capacities(backend) ? IdCounts{model.source_vocabulary, model.target_vocabulary} : IdCounts{};
}

BatchWork::BatchWork(backend::Backend& backend, const model::ModelConfig& model, std::vector<BatchLayout> layouts)
    : backend_(backend),
      vocabularies_{model.source_vocabulary, model.target_vocabulary},
      layouts_(has_fixed_capacities(backend) ? std::move(layouts) : std::vector<BatchLayout>{}),
      memory_(backend.allocate(1).memory()) {
  for (const BatchLayout& layout : layouts_) {
    feed_bytes_ = std::max(feed_bytes_, layout.bytes());
  }
  feed_ = feed_bytes_ > 0 ? backend.make_feed(feed_bytes_) : nullptr;
}

size_t BatchWork::smallest_layout(const data::HostBatch& batch) const {
  const auto layout = std::find_if(layouts_.begin(), layouts_.end(),
                                   [&batch](const BatchLayout& candidate) { return candidate.holds(batch); });
  require(layout != layouts_.end(), "a micro-batch of {} + {} tokens and {} pairs is larger than the largest capacity",
          batch.source.tokens.size(), batch.target.tokens.size(), batch.pairs.size());
  return static_cast<size_t>(layout - layouts_.begin());
}

int64_t BatchWork::rows_of(const data::HostBatch& batch) const {
  if (!replays()) {
    return static_cast<int64_t>(batch.source.tokens.size() + batch.target.tokens.size());
  }
  const data::MicroBatchCapacity& capacity = layouts_[smallest_layout(batch)].capacity();
  return capacity.source + capacity.target;
}

IdCounts BatchWork::ids_of(const data::TrainStep& step) const {
  const IdCounts ids{static_cast<int64_t>(step.source_ids.size()), static_cast<int64_t>(step.target_ids.size())};
  return replays()
             ? IdCounts{ids_capacity(ids.source, vocabularies_.source), ids_capacity(ids.target, vocabularies_.target)}
             : ids;
}

void BatchWork::give(const data::HostBatch& batch, const data::TrainStep& step, const StepInput& input, int kind,
                     bool recorded, const Body& body) {
  const size_t number = replays() ? smallest_layout(batch) : 0;
  const BatchLayout layout = replays() ? layouts_[number] : BatchLayout::exactly_for(batch, step);
  if (layout.bytes() > feed_bytes_) {
    feed_bytes_ = layout.bytes();
    feed_ = backend_.make_feed(feed_bytes_);
  }
  layout.write(feed_->next(), batch, step, input);
  feed_->send();
  void* block = feed_->block();
  const IdCounts ids = ids_of(step);
  const Given given{layout.batch(block, memory_, batch), layout.step_ids(block, memory_, ids),
                    static_cast<StepInput*>(block)};
  Recordable* work = replays() ? &recordings_[{static_cast<int64_t>(number), ids.source, ids.target, kind}] : nullptr;
  // Not recorded the first time: libraries choose algorithms, allocate memory and make connections when they are first
  // used.
  if (work == nullptr || !std::exchange(work->warm, true) || !recorded) {
    body(given);
    return;
  }
  if (work->recording == nullptr) {
    work->recording = backend_.record([body, given] { body(given); });
  }
  work->recording->run();
}

}  // namespace tandem::train
