#include "text/subword_dropout.h"

#include <algorithm>

#include "core/error.h"
#include "text/cleaning.h"

namespace tandem::text {

namespace {

size_t bytes_of_character(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace

SubwordDropout::SubwordDropout(const Subwords& subwords, double rate, const std::string& name)
    : subwords_(subwords), rate_(rate) {
  require(subwords.not_only_merges().empty(), "{} cannot be used with subword dropout, because {}", name,
          subwords.not_only_merges());
  texts_.reserve(static_cast<size_t>(subwords.size()));  // pieces_ refers to them
  for (int32_t id = 0; id < subwords.size(); ++id) {
    const auto score = subwords.merge_score(id);
    texts_.push_back(score ? subwords.piece(id) : "");
    if (score) {
      pieces_[texts_.back()] = {id, *score};
    }
  }
}

float SubwordDropout::score_of(const std::vector<Part>& parts, size_t left) const {
  if (left + 1 >= parts.size()) {
    return kNone;
  }
  const std::string_view l = parts[left].text, r = parts[left + 1].text;
  const auto found = pieces_.find({l.data(), l.size() + r.size()});  // neighbours in one text
  return found == pieces_.end() ? kNone : found->second.score;
}

// Merges as SentencePiece does, but skips each possible pair with probability rate_ until a neighbour changes.
void SubwordDropout::merge(std::string_view text, PhiloxStream& random, std::vector<Part>& parts) const {
  for (size_t at = 0; at < text.size(); at += parts.back().text.size()) {
    parts.push_back({text.substr(at, bytes_of_character(text[at])), kNone});
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].score = score_of(parts, i);
  }
  while (!parts.empty()) {
    const auto best = std::ranges::max_element(parts, {}, &Part::score);  // the first of equals
    if (best->score == kNone) {
      return;
    }
    if (uniform(random.next()) < rate_) {
      best->score = kNone;
      continue;
    }
    const auto left = static_cast<size_t>(best - parts.begin());
    best->text = {best->text.data(), best->text.size() + (best + 1)->text.size()};
    parts.erase(best + 1);
    parts[left].score = score_of(parts, left);
    if (left > 0) {
      parts[left - 1].score = score_of(parts, left - 1);
    }
  }
}

void SubwordDropout::encode(std::string_view line, PhiloxStream& random, std::vector<int32_t>& ids) const {
  if (line.find(kSpaceMark) != std::string_view::npos) {
    subwords_.encode(line, ids);
    return;
  }
  std::vector<int32_t> plain;
  std::vector<Part> parts;
  std::string text;
  while (!line.empty()) {
    const std::string_view word = take_word(line);
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
    const auto known = [&](const Part& part) { return pieces_.contains(part.text); };
    if (parts.empty() || !std::ranges::all_of(parts, known)) {
      ids.insert(ids.end(), plain.begin(), plain.end());
      continue;
    }
    for (const Part& part : parts) {
      ids.push_back(pieces_.find(part.text)->second.id);
    }
  }
}

}  // namespace tandem::text
