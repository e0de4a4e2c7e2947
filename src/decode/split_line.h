// Cuts a line that is too long for the model into parts that are not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::decode {

// Parts of at most `limit` pieces (`count_pieces` counts them), in order, without the white space between them. Cuts at
// the last sentence end in the second half of what fits, else at a clause mark, else between words; inside a word only
// where the word alone is too long. A character that alone has more pieces than the limit is left out.
std::vector<std::string> split_line(std::string_view line, int64_t limit,
                                    const std::function<int64_t(std::string_view)>& count_pieces);

}  // namespace tandem::decode
