// Subword pieces by SentencePiece: text to ids and back.
//
// Ids: pad 0, eos 1, bos 2, unk 3. encode() adds neither bos nor eos. Thread-safe: const calls may run at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::text {

constexpr int32_t kPad = 0;
constexpr int32_t kEos = 1;
constexpr int32_t kBos = 2;
constexpr int32_t kUnk = 3;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, stands for a space inside pieces

struct ModelTraits {
  // Empty if splitting a line at its spaces (U+0020) and encoding each word alone gives the pieces of the whole line;
  // otherwise the reason why that is not certain. docs/formats.md has the argument.
  std::string words_depend;
  // Empty if a BPE model's pieces come from merges alone; otherwise the reason why not.
  std::string not_only_merges;
};

struct ExaminedModel {
  std::string bytes;  // what was examined, written anew, and nothing else: only these are for SentencePiece
  ModelTraits traits;
};

// Reads the settings and checks the normaliser's table so that no lookup can leave it; throws Error for a file that is
// not a model or is damaged. `name` is for the message.
ExaminedModel examine_model(std::string_view original, const std::string& name);

class Subwords {
 public:
  // Fails if the file is missing or damaged, or if its special ids are not the ones above.
  static Subwords load(const std::filesystem::path& model);
  static Subwords from_bytes(const std::string& model, const std::string& name);

  Subwords(Subwords&&) noexcept;
  Subwords& operator=(Subwords&&) noexcept;
  ~Subwords();

  int32_t size() const;  // size of the vocabulary
  // Appends the pieces of one line, exactly those of SentencePiece.
  void encode(std::string_view line, std::vector<int32_t>& ids) const;
  // Text of the pieces; pad, eos and bos are left out, unk shows as a double question mark (U+2047).
  std::string decode(std::span<const int32_t> ids) const;
  std::string piece(int32_t id) const;
  // Score of a piece made by merges; higher scores merge first. None for special pieces and single bytes.
  std::optional<float> merge_score(int32_t id) const;
  const std::string& bytes() const;  // the model file's content, for checkpoints
  // Whether lines are encoded word by word through a cache, which is proven to give the same pieces for this model.
  bool by_words() const;
  // Empty if a word's pieces come from merges of characters alone; otherwise the reason why not.
  const std::string& not_only_merges() const;

 private:
  struct State;
  explicit Subwords(std::unique_ptr<State> state);
  void require_known(int32_t id) const;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::text
