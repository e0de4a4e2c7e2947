// A bounded map from words to their pieces. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem {

class WordCache {
 public:
  static constexpr size_t kLongestWord = 64;  // bytes; longer words are rare and are not kept

  // Appends the word's pieces; false when the word is not known.
  bool find(std::string_view word, std::vector<int32_t>& ids) const;
  void insert(std::string_view word, std::vector<int32_t> pieces);

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };
  // Many small maps, so that threads seldom wait for each other. A full one is emptied: what is frequent comes back.
  struct Shard {
    mutable std::shared_mutex mutex;
    std::unordered_map<std::string, std::vector<int32_t>, Hash, std::equal_to<>> words;
  };
  static constexpr size_t kShards = 256;
  static constexpr size_t kShardWords = 4096;  // about a million words in all, at most some 200 MB

  std::array<Shard, kShards> shards_;
};

}  // namespace tandem
