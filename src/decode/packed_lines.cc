#include "decode/packed_lines.h"

#include "text/subwords.h"

namespace tandem::decode {

void PackedLines::add_source(std::span<const int32_t> ids) {
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  tokens_.push_back(text::kEos);
  end_sentence(ids.size() + 1);
}

void PackedLines::add_target(std::span<const int32_t> ids) {
  tokens_.push_back(text::kBos);
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  end_sentence(ids.size() + 1);
}

void PackedLines::end_sentence(size_t length) {
  for (size_t i = 0; i < length; ++i) {
    position_.push_back(static_cast<int32_t>(i));
  }
  starts_.push_back(static_cast<int32_t>(tokens_.size()));
  longest_ = std::max(longest_, static_cast<int64_t>(length));
}

model::PackedSide PackedLines::upload(backend::Backend& backend, Arena& arena) const {
  UploadTables tables;
  const int64_t tokens_at = tables.add(tokens_), position_at = tables.add(position_), starts_at = tables.add(starts_);
  tables.upload(backend, arena);
  model::PackedSide side;
  side.tokens = tables.table(tokens_at, 1, static_cast<int64_t>(tokens_.size()));
  side.position = tables.table(position_at, 1, static_cast<int64_t>(position_.size()));
  side.starts = tables.table(starts_at, 1, static_cast<int64_t>(starts_.size()));
  side.longest = longest_;
  return side;
}

}  // namespace tandem::decode
