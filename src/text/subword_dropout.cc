#include "text/subword_dropout.h"

#include <algorithm>

#include "core/error.h"
#include "text/subwords_model.h"

namespace tandem {

namespace {

size_t bytes_of_character(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

std::string_view joined(std::string_view left, std::string_view right) {  // neighbours in one text
  return {left.data(), left.size() + right.size()};
}

}  // namespace

SubwordDropout::SubwordDropout(const Subwords& subwords, double rate, const std::string& name)
    : subwords_(subwords), rate_(rate) {
  require(subwords.not_only_merges().empty(), "{} does not go with subword dropout, because {}", name,
          subwords.not_only_merges());
  for (int32_t id = 0; id < subwords.size(); ++id) {
    texts_.push_back(subwords.merge_score(id) ? subwords.piece(id) : "");
  }
  for (int32_t id = 0; id < subwords.size(); ++id) {
    if (const auto score = subwords.merge_score(id)) {
      pieces_[texts_[static_cast<size_t>(id)]] = {id, *score};
    }
  }
}

// As SentencePiece merges, but every pair that comes up is left out with probability rate_, until a neighbour changes.
void SubwordDropout::merge(std::string_view text, PhiloxStream& random, std::vector<std::string_view>& parts) const {
  std::vector<bool> left_out;  // a part and its right neighbour
  for (size_t at = 0; at < text.size(); at += parts.back().size()) {
    parts.push_back(text.substr(at, bytes_of_character(text[at])));
    left_out.push_back(false);
  }
  while (true) {
    size_t best = parts.size();
    float score = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = left_out[i] ? pieces_.end() : pieces_.find(joined(parts[i], parts[i + 1]));
      if (found != pieces_.end() && (best == parts.size() || found->second.score > score)) {
        best = i;
        score = found->second.score;
      }
    }
    if (best == parts.size()) {
      return;
    }
    if (uniform(random.next()) < rate_) {
      left_out[best] = true;
      continue;
    }
    parts[best] = joined(parts[best], parts[best + 1]);
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
    left_out.erase(left_out.begin() + static_cast<ptrdiff_t>(best) + 1);
    left_out[best] = false;
    if (best > 0) {
      left_out[best - 1] = false;
    }
  }
}

void SubwordDropout::encode(std::string_view line, PhiloxStream& random, std::vector<int32_t>& ids) const {
  if (line.find(kSpaceMark) != std::string_view::npos) {
    subwords_.encode(line, ids);
    return;
  }
  std::vector<int32_t> plain;
  std::vector<std::string_view> parts;
  std::string text;
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    plain.clear();
    text.clear();
    parts.clear();
    subwords_.encode(word, plain);
    for (const int32_t id : plain) {
      text += texts_[static_cast<size_t>(id)];
    }
    const auto special = [&](int32_t id) { return texts_[static_cast<size_t>(id)].empty(); };
    if (text.size() <= kLongestWord && std::ranges::none_of(plain, special)) {
      merge(text, random, parts);
    }
    const auto known = [&](std::string_view part) { return pieces_.contains(part); };
    if (parts.empty() || !std::ranges::all_of(parts, known)) {
      ids.insert(ids.end(), plain.begin(), plain.end());
      continue;
    }
    for (const std::string_view part : parts) {
      ids.push_back(pieces_.find(part)->second.id);
    }
  }
}

}  // namespace tandem
