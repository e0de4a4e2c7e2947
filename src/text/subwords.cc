#include "text/subwords.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/philox.h"
#include "text/cleaning.h"

namespace tandem::text {

namespace {

constexpr uint64_t kLargestModel = uint64_t{1} << 28;

using Processor = sentencepiece::SentencePieceProcessor;

void encode_whole(const Processor& processor, std::string_view text, std::vector<int32_t>& ids) {
  std::vector<int> pieces;
  const auto status = processor.Encode(text, &pieces);
  require(status.ok(), "SentencePiece cannot encode a line: {}", status.ToString());
  ids.insert(ids.end(), pieces.begin(), pieces.end());
}

// A bounded map from words to their pieces. Thread-safe without locks: entries never change.
class WordCache {
 public:
  static constexpr size_t kLongestWord = 64;  // bytes; longer words are rare and are not kept

  WordCache() : slots_(static_cast<Slot*>(std::calloc(kSlots, sizeof(Slot)))) {
    if (slots_ == nullptr) {
      throw std::bad_alloc();
    }
  }
  ~WordCache() {
    for (size_t i = 0; entries_ > 0 && i < kSlots; ++i) {
      if (Entry* const entry = slots_[i].load(std::memory_order_relaxed)) {
        std::free(entry);
        --entries_;
      }
    }
  }

  // Appends the word's pieces; returns false if the word is unknown.
  bool find(std::string_view word, std::vector<int32_t>& ids) const {
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

  // Does nothing if there is no room: frequent words come early in running text.
  void insert(std::string_view word, std::span<const int32_t> pieces) {
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

 private:
  static constexpr size_t kSlots = size_t{1} << 21;
  static constexpr size_t kProbes = 8;             // slots in which a word may be
  static constexpr size_t kMostEntries = 1 << 20;  // about 100 MB

  // One block of memory holds this header, the pieces and the word.
  struct Entry {
    size_t hash;
    uint32_t word_bytes;
    uint32_t pieces;

    int32_t* ids() { return reinterpret_cast<int32_t*>(this + 1); }
    char* word() { return reinterpret_cast<char*>(ids() + pieces); }
    bool is(size_t other_hash, std::string_view other) {
      return hash == other_hash && std::string_view(word(), word_bytes) == other;
    }
  };
  using Slot = std::atomic<Entry*>;
  struct Free {
    void operator()(Slot* slots) const { std::free(slots); }
  };

  std::unique_ptr<Slot[], Free> slots_;  // pages that nobody wrote to take no memory
  std::atomic<size_t> entries_{0};
};

void check_special_ids(const Processor& processor, const std::string& name) {
  const int ids[] = {processor.pad_id(), processor.eos_id(), processor.bos_id(), processor.unk_id()};
  require(ids[0] == kPad && ids[1] == kEos && ids[2] == kBos && ids[3] == kUnk,
          "{} has the special ids pad {}, eos {}, bos {}, unk {} instead of 0, 1, 2, 3; train it with --pad_id=0 "
          "--eos_id=1 --bos_id=2 --unk_id=3",
          name, ids[0], ids[1], ids[2], ids[3]);
}

}  // namespace

struct Subwords::State {
  Processor processor;
  std::string bytes;
  bool by_words = false;
  std::string not_only_merges;
  mutable WordCache cache;

  // Gives the same pieces as encode_whole(), word by word.
  void encode_words(std::string_view line, std::vector<int32_t>& ids) const {
    while (!line.empty()) {
      const std::string_view word = take_word(line);
      if (word.empty() || cache.find(word, ids)) {
        continue;
      }
      std::vector<int32_t> pieces;
      encode_whole(processor, word, pieces);
      ids.insert(ids.end(), pieces.begin(), pieces.end());
      if (word.size() <= WordCache::kLongestWord) {
        cache.insert(word, pieces);
      }
    }
  }

  // Whether both ways of encoding agree on lines of random pieces, unknown characters and odd spaces.
  bool words_agree() const {
    static constexpr const char* kOdd[] = {
        " ",        "  ",       "\t",           "\xC2\xA0",         "\xE3\x80\x80", "\xE2\x80\x8B",
        "\xCC\x88", "\xC2\xA8", "\xEF\xAC\x81", "\xF0\x9F\xA4\xB7", "\x01",         "\xE2\x96\x81"};
    PhiloxStream random(20240229, 11);
    for (int line = 0; line < 200; ++line) {
      std::string text;
      for (uint64_t part = 0; part < 20; ++part) {
        const auto id = static_cast<int>(random.below(static_cast<uint64_t>(processor.GetPieceSize())));
        std::string piece = processor.IdToPiece(id);
        if (piece.starts_with(kSpaceMark)) {
          piece.replace(0, kSpaceMark.size(), " ");
        }
        text += random.below(4) == 0 ? kOdd[random.below(std::size(kOdd))] : piece;
      }
      std::vector<int32_t> whole, words;
      encode_whole(processor, text, whole);
      encode_words(text, words);
      if (text.find(kSpaceMark) == std::string::npos && whole != words) {
        return false;
      }
    }
    return true;
  }
};

Subwords Subwords::load(const std::filesystem::path& model) {
  return from_bytes(read_file(model, kLargestModel), model.string());
}

Subwords Subwords::from_bytes(const std::string& model, const std::string& name) {
  const auto [examined, traits] = examine_model(model, name);
  auto state = std::make_unique<State>();
  const auto status = state->processor.LoadFromSerializedProto(examined);
  require(status.ok(), "{} is not a SentencePiece model, or it is damaged", name);
  check_special_ids(state->processor, name);
  state->bytes = model;
  std::string reason = traits.words_depend;
  if (reason.empty() && !state->words_agree()) {
    reason = "the self-test found a difference";
  }
  state->by_words = reason.empty();
  state->not_only_merges = !reason.empty() ? reason : traits.not_only_merges;
  if (!state->by_words) {
    log::info("{}: lines are encoded whole, which is slower, because {}", name, reason);
  }
  return Subwords(std::move(state));
}

Subwords::Subwords(std::unique_ptr<State> state) : state_(std::move(state)) {}
Subwords::Subwords(Subwords&&) noexcept = default;
Subwords& Subwords::operator=(Subwords&&) noexcept = default;
Subwords::~Subwords() = default;

int32_t Subwords::size() const { return state_->processor.GetPieceSize(); }

void Subwords::encode(std::string_view line, std::vector<int32_t>& ids) const {
  // SentencePiece cuts off a literal space mark at a line's end but not inside it, so such words depend on each other.
  if (state_->by_words && line.find(kSpaceMark) == std::string_view::npos) {
    state_->encode_words(line, ids);
  } else {
    encode_whole(state_->processor, line, ids);
  }
}

void Subwords::require_known(int32_t id) const {
  require(id >= 0 && id < size(), "the piece id {} is not in the vocabulary of {} pieces", id, size());
}

std::string Subwords::decode(std::span<const int32_t> ids) const {
  std::ranges::for_each(ids, [this](int32_t id) { require_known(id); });
  std::string text;
  const auto status = state_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  require(status.ok(), "SentencePiece cannot decode: {}", status.ToString());
  return text;
}

std::string Subwords::piece(int32_t id) const {
  require_known(id);
  return state_->processor.IdToPiece(id);
}

std::optional<float> Subwords::merge_score(int32_t id) const {
  require_known(id);
  const Processor& processor = state_->processor;
  const bool made = !processor.IsUnknown(id) && !processor.IsControl(id) && !processor.IsByte(id);
  return made ? std::optional(processor.GetScore(id)) : std::nullopt;
}

const std::string& Subwords::bytes() const { return state_->bytes; }

bool Subwords::by_words() const { return state_->by_words; }

const std::string& Subwords::not_only_merges() const { return state_->not_only_merges; }

}  // namespace tandem::text
