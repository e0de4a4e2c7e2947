#include "train/batch_work.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace tandem::train {

namespace {

// The smallest of a few sizes that holds `ids`, so that a few recordings serve all steps.
int64_t ids_capacity(int64_t ids, int64_t vocabulary) {
  int64_t capacity = vocabulary;
  while (capacity / 2 >= std::max<int64_t>(ids, vocabulary / 8)) {
    capacity /= 2;
  }
  return ids == 0 ? 0 : capacity;
}

}  // namespace

BatchWork::BatchWork(backend::Backend& backend, const model::ModelConfig& model, std::vector<BatchLayout> layouts)
    : backend_(backend),
      vocabularies_{model.source_vocabulary, model.target_vocabulary},
      layouts_(backend.traits().replays ? std::move(layouts) : std::vector<BatchLayout>{}),
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
  const Given given{layout.batch(block, memory_, batch),
                    {layout.step_ids(block, memory_, Side::source, ids.source),
                     layout.step_ids(block, memory_, Side::target, ids.target)},
                    static_cast<StepInput*>(block)};
  if (!replays()) {
    body(given);
    return;
  }
  run(recordings_[{static_cast<int64_t>(number), ids.source, ids.target, kind}], recorded,
      [body, given] { body(given); });
}

// The first time is not recorded: libraries choose algorithms, take memory and make connections when they are first
// used.
void BatchWork::run(Recordable& work, bool recorded, const std::function<void()>& body) {
  const bool warm = std::exchange(work.warm, true);
  if (!recorded || !warm) {
    body();
    return;
  }
  if (work.recording == nullptr) {
    work.recording = backend_.record(body);
  }
  work.recording->run();
}

}  // namespace tandem::train
