#include "text/subwords_train.h"

#include <sentencepiece_trainer.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "text/cleaning.h"
#include "text/subwords.h"

namespace tandem::text {

namespace {

constexpr size_t kMostWords = 4'000'000;  // about 500 MB
constexpr size_t kLongestWord = 1000;     // bytes; longer "words" teach nothing

class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::vector<std::string> lines) : lines_(std::move(lines)) {}
  bool done() const override { return next_ == lines_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return lines_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> lines_;
  size_t next_ = 0;
};

// Whether the word has a character that was not seen before; marks all of its characters as seen.
bool has_new_character(std::string_view word, std::vector<bool>& seen) {
  bool found = false;
  for (size_t i = 0; i < word.size();) {
    UChar32 character = 0;
    U8_NEXT(reinterpret_cast<const uint8_t*>(word.data()), i, word.size(), character);
    if (character >= 0 && !seen[static_cast<size_t>(character)]) {
      seen[static_cast<size_t>(character)] = true;
      found = true;
    }
  }
  return found;
}

}  // namespace

void WordCounts::add(std::string_view line) {
  while (!line.empty()) {
    const std::string_view word = take_word(line);
    if (word.empty() || word.size() > kLongestWord) {
      continue;
    }
    ++total_;
    if (const auto found = words_.find(word); found != words_.end()) {
      ++found->second;
    } else {
      words_.emplace(word, 1);
    }
  }
  if (words_.size() > kMostWords) {
    forget_rare();
  }
}

void WordCounts::forget_rare() {
  for (int64_t rare = 1; words_.size() > kMostWords / 2; rare *= 2) {
    std::erase_if(words_, [&](const auto& word) { return word.second <= rare; });
  }
}

std::vector<std::string> WordCounts::most_frequent(size_t most) const {
  std::vector<std::pair<std::string_view, int64_t>> sorted(words_.begin(), words_.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  std::vector<bool> seen(0x110000);
  std::vector<std::string> lines;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const bool needed = has_new_character(sorted[i].first, seen);
    if (i < most || needed) {
      lines.push_back(fmt::format("{}\t{}", sorted[i].first, sorted[i].second));
    }
  }
  return lines;
}

std::string train_subwords(const WordCounts& counts, const SubwordTraining& options) {
  const auto text = [](auto value) { return fmt::format("{}", value); };
  // num_threads is written into the model, so it is the same everywhere; BPE training uses one thread anyway.
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", "bpe"},
      {"input_format", "tsv"},
      {"vocab_size", text(options.vocab_size)},
      {"character_coverage", text(options.character_coverage)},
      {"pad_id", text(kPad)},
      {"eos_id", text(kEos)},
      {"bos_id", text(kBos)},
      {"unk_id", text(kUnk)},
      {"hard_vocab_limit", "false"},
      {"num_threads", "2"},
      {"minloglevel", "2"}};
  Lines lines(counts.most_frequent(static_cast<size_t>(options.words)));
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &model);
  require(status.ok(), "SentencePiece cannot learn {} pieces from this text: {}", options.vocab_size,
          status.ToString());
  const int64_t size = Subwords::from_bytes(model, "the new tokenizer").size();
  require(
      size == options.vocab_size,
      "the text is too small for a vocabulary of {} pieces: at most {} are possible; set --vocab-size to {} or less",
      options.vocab_size, size, size);
  return model;
}

}  // namespace tandem::text
