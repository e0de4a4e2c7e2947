#include "text/subwords_cache.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <new>

namespace tandem::text {

// One block of memory holds this header, the pieces and the word.
struct WordCache::Entry {
  size_t hash;
  uint32_t word_bytes;
  uint32_t pieces;

  int32_t* ids() { return reinterpret_cast<int32_t*>(this + 1); }
  char* word() { return reinterpret_cast<char*>(ids() + pieces); }
  bool is(size_t other_hash, std::string_view other) {
    return hash == other_hash && std::string_view(word(), word_bytes) == other;
  }
};

void WordCache::Free::operator()(std::atomic<Entry*>* slots) const { std::free(slots); }

WordCache::WordCache() : slots_(static_cast<std::atomic<Entry*>*>(std::calloc(kSlots, sizeof(std::atomic<Entry*>)))) {
  if (slots_ == nullptr) {
    throw std::bad_alloc();
  }
}

WordCache::~WordCache() {
  for (size_t i = 0; entries_ > 0 && i < kSlots; ++i) {
    if (Entry* const entry = slots_[i].load(std::memory_order_relaxed)) {
      std::free(entry);
      --entries_;
    }
  }
}

bool WordCache::find(std::string_view word, std::vector<int32_t>& ids) const {
  const size_t hash = std::hash<std::string_view>()(word);
  for (size_t probe = 0; probe < kProbes; ++probe) {
    Entry* const entry = slots_[(hash + probe) % kSlots].load(std::memory_order_acquire);
    if (entry == nullptr) {
      return false;
    }
    if (entry->is(hash, word)) {
      ids.insert(ids.end(), entry->ids(), entry->ids() + entry->pieces);
      return true;
    }
  }
  return false;
}

void WordCache::insert(std::string_view word, std::span<const int32_t> pieces) {
  if (entries_.load(std::memory_order_relaxed) >= kMostEntries) {
    return;
  }
  auto* const entry = static_cast<Entry*>(std::malloc(sizeof(Entry) + pieces.size_bytes() + word.size()));
  if (entry == nullptr) {
    return;
  }
  const size_t hash = std::hash<std::string_view>()(word);
  *entry = {hash, static_cast<uint32_t>(word.size()), static_cast<uint32_t>(pieces.size())};
  std::copy(pieces.begin(), pieces.end(), entry->ids());
  std::copy(word.begin(), word.end(), entry->word());
  for (size_t probe = 0; probe < kProbes; ++probe) {
    Entry* found = nullptr;
    if (slots_[(hash + probe) % kSlots].compare_exchange_strong(found, entry, std::memory_order_acq_rel)) {
      ++entries_;
      return;
    }
    if (found->is(hash, word)) {
      break;
    }
  }
  std::free(entry);
}

}  // namespace tandem::text
