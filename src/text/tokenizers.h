// The tokenizers of BLEU and TER. Each returns text whose tokens are separated by white space; metric::split() cuts it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::text {

struct TerOptions;

namespace metric {

using Tokenizer = std::u32string (*)(std::u32string_view line);

std::u32string tokenize_13a(std::u32string_view line);   // mteval-v13a, the default of BLEU
std::u32string tokenize_intl(std::u32string_view line);  // mteval-v14: Unicode punctuation and symbols
std::u32string tokenize_char(std::u32string_view line);  // every character
std::u32string tokenize_none(std::u32string_view line);

// Names as in BLEU's signature.
inline const std::vector<std::string> kBleuTokenizers = {"13a", "intl", "char", "none"};
Tokenizer bleu_tokenizer(std::string_view name);

// Returns tokens separated by one space.
std::u32string tokenize_tercom(std::u32string_view line, const TerOptions& options);

}  // namespace metric
}  // namespace tandem::text
