// Looks inside a SentencePiece model file, before it is used.
#pragma once

#include <string>
#include <string_view>

namespace tandem::text {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, stands for a space inside pieces

struct ModelTraits {
  // Empty if splitting a line at its spaces (U+0020) and encoding each word alone gives the pieces of the whole line;
  // otherwise the reason why that is not certain. docs/formats.md has the argument.
  std::string words_depend;
  // Empty if a BPE model's pieces come from merges alone; otherwise the reason why not.
  std::string not_only_merges;
};

// Reads the settings and checks the normaliser's table so that no lookup can leave it; throws Error for a file that is
// not a model or is damaged. `name` is for the message.
ModelTraits examine_model(std::string_view bytes, const std::string& name);

}  // namespace tandem::text
