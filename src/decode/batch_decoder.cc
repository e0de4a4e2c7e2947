#include "decode/batch_decoder.h"

#include <algorithm>
#include <cstring>

#include "decode/packed_lines.h"

namespace tandem::decode {

KeyValueCache::KeyValueCache(backend::Backend& backend, const model::ModelConfig& config, DType dtype)
    : backend_(backend), layers_(config.decoder_layers), width_(config.width), dtype_(dtype) {}

void KeyValueCache::reserve(int64_t rows, int64_t used) {
  constexpr int64_t kSmallest = 1024;
  if (rows <= capacity_) {
    return;
  }
  const int64_t capacity = std::max({rows, 2 * capacity_, kSmallest});
  Buffer buffer = backend_.allocate(static_cast<size_t>(2 * layers_ * capacity * width_) * size_of(dtype_));
  const View all = buffer.view(dtype_, 2 * layers_ * capacity, width_);
  std::vector<View> keys, values;
  for (int64_t layer = 0; layer < layers_; ++layer) {
    keys.push_back(all.slice_rows(2 * layer * capacity, capacity));
    values.push_back(all.slice_rows((2 * layer + 1) * capacity, capacity));
    if (used > 0) {
      backend_.copy(keys.back().slice_rows(0, used), keys_[static_cast<size_t>(layer)].slice_rows(0, used));
      backend_.copy(values.back().slice_rows(0, used), values_[static_cast<size_t>(layer)].slice_rows(0, used));
    }
  }
  buffer_ = std::move(buffer);
  keys_ = std::move(keys);
  values_ = std::move(values);
  capacity_ = capacity;
}

void KeyValueCache::clear() {
  buffer_ = {};
  keys_.clear();
  values_.clear();
  capacity_ = 0;
}

namespace {

// The encoded source sentences, and the rows of each.
struct EncodedSource {
  View memory;
  std::vector<int32_t> first;   // each sentence's first row
  std::vector<int32_t> length;  // each sentence's number of rows
};

EncodedSource encode(backend::Backend& backend, model::Transformer& model, const nn::Weights& weights,
                     std::span<const std::vector<int32_t>> sources, Arena& arena) {
  EncodedSource encoded;
  PackedLines packed;
  for (const std::vector<int32_t>& ids : sources) {
    encoded.first.push_back(packed.rows());
    encoded.length.push_back(static_cast<int32_t>(ids.size()) + 1);
    packed.add_source(ids);
  }
  encoded.memory = model.encode(weights, packed.upload(backend, arena), arena);
  return encoded;
}

class TransformerScorer : public StepScorer {
 public:
  TransformerScorer(backend::Backend& backend, model::Transformer& model, const nn::Weights& weights,
                    const EncodedSource& source, KeyValueCache& cache, Arena& arena)
      : backend_(backend), model_(model), weights_(weights), source_(source), cache_(cache), arena_(arena) {}

  int64_t vocabulary() const override { return model_.config().target_vocabulary; }

  void step(std::span<const SearchRow> rows, int64_t k, std::vector<float>& values,
            std::vector<int32_t>& ids) override {
    const auto count = static_cast<int64_t>(rows.size());
    cache_.reserve(written_ + backend_.traits().decode_rows(count), written_);
    ++steps_;
    const Arena::Mark mark = arena_.mark();
    const View logits = model_.decode(weights_, decode_step(rows), arena_);
    // Both results in one block, since every download waits for the device.
    const View best = arena_.take(DType::i32, 2 * count, k);
    backend_.run(backend::op::TopLogProbabilities{.values = best.slice_rows(0, count).reinterpret(DType::f32),
                                                  .ids = best.slice_rows(count, count),
                                                  .logits = logits.slice_rows(0, count)});
    const auto size = static_cast<size_t>(count * k);
    best_.resize(2 * size);
    backend_.download(best_.data(), best);
    values.resize(size);
    std::memcpy(values.data(), best_.data(), size * sizeof(float));
    ids.assign(best_.begin() + static_cast<std::ptrdiff_t>(size), best_.end());
    arena_.release(mark);
    written_ += count;
  }

 private:
  // Unused rows at the end are pads that attend to nothing; the next step overwrites their rows of the cache.
  model::DecodeStep decode_step(std::span<const SearchRow> rows) {
    const auto used = static_cast<int64_t>(rows.size());
    const int64_t count = backend_.traits().decode_rows(used);
    std::swap(tables_, parents_);
    const int64_t parents_index_at = index_at_;
    tables_.clear();
    const int64_t tokens_at = tables_.add(count), position_at = tables_.add(count), first_at = tables_.add(count),
                  length_at = tables_.add(count), self_length_at = tables_.add(count);
    index_at_ = tables_.add(count * steps_);
    std::fill_n(tables_.at(position_at), count, static_cast<int32_t>(steps_ - 1));
    std::fill_n(tables_.at(self_length_at), used, static_cast<int32_t>(steps_));
    for (int64_t r = 0; r < used; ++r) {
      const SearchRow& row = rows[static_cast<size_t>(r)];
      *tables_.at(tokens_at + r) = row.token;
      *tables_.at(first_at + r) = source_.first[static_cast<size_t>(row.sentence)];
      *tables_.at(length_at + r) = source_.length[static_cast<size_t>(row.sentence)];
      // The parent's cache rows, then the row that this step writes.
      int32_t* own = tables_.at(index_at_ + r * steps_);
      own = std::copy_n(parents_.at(parents_index_at + row.parent * (steps_ - 1)), steps_ - 1, own);
      *own = static_cast<int32_t>(written_ + r);
    }
    for (const int64_t table : {tokens_at, first_at, length_at, self_length_at}) {
      std::fill(tables_.at(table + used), tables_.at(table + count), 0);
    }
    std::fill(tables_.at(index_at_ + used * steps_), tables_.at(index_at_ + count * steps_), 0);
    tables_.upload(backend_, arena_);
    model::DecodeStep step;
    step.tokens = tables_.table(tokens_at, 1, count);
    step.position = tables_.table(position_at, 1, count);
    step.keys = cache_.keys();
    step.values = cache_.values();
    step.write_row = written_;
    step.self_index = tables_.table(index_at_, count, steps_);
    step.self_length = tables_.table(self_length_at, 1, count);
    step.memory = source_.memory;
    step.memory_first = tables_.table(first_at, 1, count);
    step.memory_length = tables_.table(length_at, 1, count);
    return step;
  }

  backend::Backend& backend_;
  model::Transformer& model_;
  const nn::Weights& weights_;
  const EncodedSource& source_;
  KeyValueCache& cache_;
  Arena& arena_;
  int64_t steps_ = 0;
  int64_t written_ = 0;            // cache rows in use
  UploadTables tables_, parents_;  // this step's and the previous step's
  int64_t index_at_ = 0;           // each row's cache rows [rows, steps] in tables_
  std::vector<int32_t> best_;      // [2, rows, k]: values and ids
};

}  // namespace

BatchDecoder::BatchDecoder(backend::Backend& backend, model::Transformer& model, const nn::Weights& weights)
    : backend_(backend),
      model_(model),
      weights_(weights),
      arena_([&backend](size_t bytes) { return backend.allocate(bytes); }),
      cache_(backend, model.config(), weights.compute.dtype) {}

std::vector<std::vector<Hypothesis>> BatchDecoder::translate(std::span<const std::vector<int32_t>> sources,
                                                             const SearchOptions& config) {
  if (sources.empty()) {
    return {};
  }
  std::vector<int64_t> limits;
  for (const std::vector<int32_t>& ids : sources) {
    const auto length = static_cast<int64_t>(ids.size());
    require(length <= longest_source(), "a source of {} pieces is longer than the model's limit of {}", length,
            longest_source());
    limits.push_back(std::min(length + 1 + config.max_extra, model_.config().max_length));
  }
  try {
    arena_.reset();
    const EncodedSource source = encode(backend_, model_, weights_, sources, arena_);
    TransformerScorer scorer(backend_, model_, weights_, source, cache_, arena_);
    return beam_search(scorer, limits, config);
  } catch (const backend::OutOfMemory&) {
    arena_.clear();
    cache_.clear();
    throw;
  }
}

}  // namespace tandem::decode
