// The number of edits in TER: shifts of word groups, insertions, deletions and substitutions.
#pragma once

#include <cstdint>
#include <span>

namespace tandem::text::metric {

// Edits that turn one sequence of word numbers into the other, found by tercom's greedy search with its limits on
// shifts and its beam around the diagonal, in the variant of the sacreBLEU package. Memory is linear in the lengths.
int64_t translation_edits(std::span<const uint32_t> hypothesis, std::span<const uint32_t> reference);

}  // namespace tandem::text::metric
