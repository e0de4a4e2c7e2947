// A bounded map from words to their pieces. Thread-safe without locks: an entry never changes once it is in.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tandem::text {

class WordCache {
 public:
  static constexpr size_t kLongestWord = 64;  // bytes; longer words are rare and are not kept

  WordCache();
  ~WordCache();
  WordCache(const WordCache&) = delete;
  WordCache& operator=(const WordCache&) = delete;

  // Appends the word's pieces; false when the word is not known.
  bool find(std::string_view word, std::vector<int32_t>& ids) const;
  // Does nothing if there is no room: frequent words come early in running text.
  void insert(std::string_view word, std::span<const int32_t> pieces);

 private:
  struct Entry;
  static constexpr size_t kSlots = size_t{1} << 21;
  static constexpr size_t kProbes = 8;             // slots in which a word may be
  static constexpr size_t kMostEntries = 1 << 20;  // about 100 MB

  struct Free {
    void operator()(std::atomic<Entry*>* slots) const;
  };
  std::unique_ptr<std::atomic<Entry*>[], Free> slots_;  // pages that nobody wrote to take no memory
  std::atomic<size_t> entries_{0};
};

}  // namespace tandem::text
