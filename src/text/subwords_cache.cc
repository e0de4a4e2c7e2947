#include "text/subwords_cache.h"

namespace tandem {

namespace {

size_t shard_of(std::string_view word, size_t shards) { return std::hash<std::string_view>()(word) / 7919 % shards; }

}  // namespace

bool WordCache::find(std::string_view word, std::vector<int32_t>& ids) const {
  const Shard& shard = shards_[shard_of(word, kShards)];
  const std::shared_lock lock(shard.mutex);
  const auto found = shard.words.find(word);
  if (found == shard.words.end()) {
    return false;
  }
  ids.insert(ids.end(), found->second.begin(), found->second.end());
  return true;
}

void WordCache::insert(std::string_view word, std::vector<int32_t> pieces) {
  Shard& shard = shards_[shard_of(word, kShards)];
  const std::unique_lock lock(shard.mutex);
  if (shard.words.size() >= kShardWords) {
    shard.words.clear();
  }
  pieces.shrink_to_fit();
  shard.words.try_emplace(std::string(word), std::move(pieces));
}

}  // namespace tandem
