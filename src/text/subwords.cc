#include "text/subwords.h"

#include <sentencepiece_processor.h>

#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/philox.h"
#include "text/subwords_cache.h"
#include "text/subwords_model.h"

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

  void encode_words(std::string_view line, std::vector<int32_t>& ids) const;
  bool words_agree() const;
};

// The same pieces as encode_whole(), word by word.
void Subwords::State::encode_words(std::string_view line, std::vector<int32_t>& ids) const {
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
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

// Lines of random pieces, unknown characters and odd spaces, encoded both ways.
bool Subwords::State::words_agree() const {
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

Subwords Subwords::load(const std::filesystem::path& model) {
  return from_bytes(read_file(model, kLargestModel), model.string());
}

Subwords Subwords::from_bytes(const std::string& model, const std::string& name) {
  const ModelTraits traits = examine_model(model, name);
  auto state = std::make_unique<State>();
  const auto status = state->processor.LoadFromSerializedProto(model);
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

std::string Subwords::decode(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) {
    require(id >= 0 && id < size(), "the piece id {} is not in the vocabulary of {} pieces", id, size());
  }
  std::string text;
  const auto status = state_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  require(status.ok(), "SentencePiece cannot decode: {}", status.ToString());
  return text;
}

std::string Subwords::piece(int32_t id) const {
  require(id >= 0 && id < size(), "the piece id {} is not in the vocabulary of {} pieces", id, size());
  return state_->processor.IdToPiece(id);
}

std::optional<float> Subwords::merge_score(int32_t id) const {
  require(id >= 0 && id < size(), "the piece id {} is not in the vocabulary of {} pieces", id, size());
  const Processor& processor = state_->processor;
  const bool made = !processor.IsUnknown(id) && !processor.IsControl(id) && !processor.IsByte(id);
  return made ? std::optional(processor.GetScore(id)) : std::nullopt;
}

const std::string& Subwords::bytes() const { return state_->bytes; }

bool Subwords::by_words() const { return state_->by_words; }

const std::string& Subwords::not_only_merges() const { return state_->not_only_merges; }

}  // namespace tandem::text
