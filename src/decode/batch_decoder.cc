#include "decode/batch_decoder.h"

#include <algorithm>

#include "text/subwords.h"

namespace tandem {

namespace {

// Host tables that travel to the backend in one upload.
class UploadTables {
 public:
  // Returns where the table begins.
  int64_t add(std::span<const int32_t> table) {
    const auto begin = static_cast<int64_t>(numbers_.size());
    numbers_.insert(numbers_.end(), table.begin(), table.end());
    return begin;
  }
  void upload(Backend& backend, Arena& arena) {
    view_ = arena.take(DType::i32, 1, static_cast<int64_t>(numbers_.size()));
    backend.upload(view_, numbers_.data());
  }
  View table(int64_t begin, int64_t rows, int64_t cols) const {
    return view_.slice_cols(begin, rows * cols).reshape(rows, cols);
  }

 private:
  std::vector<int32_t> numbers_;
  View view_;
};

// The encoded source sentences, and where each one lies.
struct EncodedSource {
  View memory;
  std::vector<int32_t> first;   // of each sentence
  std::vector<int32_t> length;  //
};

EncodedSource encode(Backend& backend, Transformer& model, const Weights& weights,
                     std::span<const std::vector<int32_t>> sources, Arena& arena) {
  std::vector<int32_t> tokens, position, starts{0};
  EncodedSource encoded;
  PackedSide side;
  for (const std::vector<int32_t>& ids : sources) {
    const auto length = static_cast<int32_t>(ids.size()) + 1;
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    tokens.push_back(kEos);
    for (int32_t i = 0; i < length; ++i) {
      position.push_back(i);
    }
    encoded.first.push_back(starts.back());
    encoded.length.push_back(length);
    starts.push_back(starts.back() + length);
    side.longest = std::max<int64_t>(side.longest, length);
  }
  UploadTables tables;
  const int64_t tokens_at = tables.add(tokens), position_at = tables.add(position), starts_at = tables.add(starts);
  tables.upload(backend, arena);
  side.tokens = tables.table(tokens_at, 1, static_cast<int64_t>(tokens.size()));
  side.position = tables.table(position_at, 1, static_cast<int64_t>(position.size()));
  side.starts = tables.table(starts_at, 1, static_cast<int64_t>(starts.size()));
  encoded.memory = model.encode(weights, side, arena);
  return encoded;
}

class TransformerScorer : public StepScorer {
 public:
  TransformerScorer(Backend& backend, Transformer& model, const Weights& weights, const EncodedSource& source,
                    KeyValueCache& cache, Arena& arena)
      : backend_(backend), model_(model), weights_(weights), source_(source), cache_(cache), arena_(arena) {}

  int64_t vocabulary() const override { return model_.config().target_vocabulary; }

  void step(std::span<const SearchRow> rows, int64_t k, std::vector<float>& values,
            std::vector<int32_t>& ids) override {
    const auto count = static_cast<int64_t>(rows.size());
    cache_.reserve(written_ + count, written_);
    follow_parents(rows);
    const Arena::Mark mark = arena_.mark();
    const View logits = model_.decode(weights_, decode_step(rows), arena_);
    const View best_values = arena_.take(DType::f32, count, k);
    const View best_ids = arena_.take(DType::i32, count, k);
    backend_.top_log_probabilities(best_values, best_ids, logits);
    values.resize(static_cast<size_t>(count * k));
    ids.resize(static_cast<size_t>(count * k));
    backend_.download(values.data(), best_values);
    backend_.download(ids.data(), best_ids);
    arena_.release(mark);
    written_ += count;
  }

 private:
  // Row r of the table gets its parent's cache rows and the one that this step writes for it.
  void follow_parents(std::span<const SearchRow> rows) {
    const int64_t length = steps_ + 1;
    std::vector<int32_t> table(rows.size() * static_cast<size_t>(length));
    for (size_t r = 0; r < rows.size(); ++r) {
      int32_t* own = table.data() + static_cast<int64_t>(r) * length;
      if (steps_ > 0) {
        std::copy_n(cache_rows_.data() + rows[r].parent * steps_, steps_, own);
      }
      own[steps_] = static_cast<int32_t>(written_ + static_cast<int64_t>(r));
    }
    cache_rows_.swap(table);
    steps_ = length;
  }

  Transformer::DecodeStep decode_step(std::span<const SearchRow> rows) {
    std::vector<int32_t> tokens, first, length;
    for (const SearchRow& row : rows) {
      tokens.push_back(row.token);
      first.push_back(source_.first[static_cast<size_t>(row.sentence)]);
      length.push_back(source_.length[static_cast<size_t>(row.sentence)]);
    }
    const auto count = static_cast<int64_t>(rows.size());
    const std::vector<int32_t> position(rows.size(), static_cast<int32_t>(steps_ - 1));
    const std::vector<int32_t> self_length(rows.size(), static_cast<int32_t>(steps_));
    UploadTables tables;
    const int64_t tokens_at = tables.add(tokens), position_at = tables.add(position), first_at = tables.add(first),
                  length_at = tables.add(length), self_length_at = tables.add(self_length),
                  index_at = tables.add(cache_rows_);
    tables.upload(backend_, arena_);
    Transformer::DecodeStep step;
    step.tokens = tables.table(tokens_at, 1, count);
    step.position = tables.table(position_at, 1, count);
    step.keys = cache_.keys();
    step.values = cache_.values();
    step.write_row = written_;
    step.self_index = tables.table(index_at, count, steps_);
    step.self_length = tables.table(self_length_at, 1, count);
    step.memory = source_.memory;
    step.memory_first = tables.table(first_at, 1, count);
    step.memory_length = tables.table(length_at, 1, count);
    return step;
  }

  Backend& backend_;
  Transformer& model_;
  const Weights& weights_;
  const EncodedSource& source_;
  KeyValueCache& cache_;
  Arena& arena_;
  int64_t steps_ = 0;
  int64_t written_ = 0;              // cache rows in use
  std::vector<int32_t> cache_rows_;  // [rows of the last step, steps]
};

}  // namespace

KeyValueCache::KeyValueCache(Backend& backend, const ModelConfig& config, DType dtype)
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

BatchDecoder::BatchDecoder(Backend& backend, Transformer& model, const Weights& weights)
    : backend_(backend),
      model_(model),
      weights_(weights),
      arena_([&backend](size_t bytes) { return backend.allocate(bytes); }),
      cache_(backend, model.config(), weights.compute.dtype) {}

std::vector<std::vector<Hypothesis>> BatchDecoder::translate(std::span<const std::vector<int32_t>> sources,
                                                             const DecodeConfig& config) {
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
  } catch (const OutOfMemory&) {
    arena_.clear();
    cache_.clear();
    throw;
  }
}

}  // namespace tandem
