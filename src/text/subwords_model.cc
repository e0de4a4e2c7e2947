// Examines a SentencePiece model file before it is used.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/subwords.h"

namespace tandem::text {

namespace {

[[noreturn]] void damaged(const std::string& name) { fail("{} is not a SentencePiece model, or it is damaged", name); }

std::string_view take(std::string_view& bytes, uint64_t size, const std::string& name) {
  if (size > bytes.size()) {
    damaged(name);
  }
  const std::string_view part = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return part;
}

uint64_t take_number(std::string_view& bytes, const std::string& name) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(bytes, 1, name)[0]);
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) {
      return value;
    }
  }
  damaged(name);
}

// Kinds of protocol-buffer fields on the wire.
enum Wire : uint8_t { number = 0, eight_bytes = 1, text = 2, four_bytes = 5 };

// Calls visit(field, wire, number, content) for each field in order; a field is a number or bytes. Throws if the bytes
// are damaged.
template <class Visit>
void for_each_field(std::string_view bytes, const std::string& name, const Visit& visit) {
  while (!bytes.empty()) {
    const uint64_t tag = take_number(bytes, name);
    if (tag >> 32 != 0) {  // what protobuf makes of more bits is its secret
      damaged(name);
    }
    const uint64_t field = tag >> 3;
    switch (const auto wire = static_cast<Wire>(tag & 7)) {
      case number:
        visit(field, wire, take_number(bytes, name), std::string_view());
        break;
      case eight_bytes:
        visit(field, wire, 0, take(bytes, 8, name));
        break;
      case text:
        visit(field, wire, 0, take(bytes, take_number(bytes, name), name));
        break;
      case four_bytes:
        visit(field, wire, 0, take(bytes, 4, name));
        break;
      default:
        damaged(name);
    }
  }
}

// ---- the model as SentencePiece gets it: the fields that it uses to encode and decode, of the types that they have

struct Field {
  uint64_t field;
  Wire wire;
  std::span<const Field> message = {};  // not empty: the text is a message with these fields
  bool repeated = true;                 // false: several of these messages are one
};

constexpr Field kPiece[] = {{1, text}, {2, four_bytes}, {3, number}};
// Algorithm; unknown, begin, end and padding: their ids and pieces; suffixes, bytes.
constexpr Field kTrainer[] = {{3, number},  {24, number}, {35, number}, {40, number}, {41, number}, {42, number},
                              {43, number}, {44, text},   {45, text},   {46, text},   {47, text},   {48, text}};
constexpr Field kNormalizer[] = {{1, text}, {2, text}, {3, number}, {4, number}, {5, number}};
constexpr Field kModel[] = {
    {1, text, kPiece}, {2, text, kTrainer, false}, {3, text, kNormalizer, false}, {5, text, kNormalizer, false}};

void add_number(std::string& bytes, uint64_t value) {
  for (; value > 127; value >>= 7) {
    bytes += static_cast<char>(value | 128);
  }
  bytes += static_cast<char>(value);
}

void add_text(std::string& bytes, uint64_t field, std::string_view content) {
  add_number(bytes, field << 3 | text);
  add_number(bytes, content.size());
  bytes += content;
}

// Messages are no deeper than the table of their fields.
std::string rewritten(std::string_view bytes, std::span<const Field> fields, const std::string& name) {
  std::string result;
  std::map<uint64_t, std::string> merged;
  for_each_field(bytes, name, [&](uint64_t field, Wire wire, uint64_t value, std::string_view content) {
    const auto known = std::ranges::find_if(fields, [&](const Field& f) { return f.field == field && f.wire == wire; });
    if (known == fields.end()) {
      return;
    }
    if (!known->repeated) {
      merged[field] += rewritten(content, known->message, name);
    } else if (!known->message.empty()) {
      add_text(result, field, rewritten(content, known->message, name));
    } else if (wire == text) {
      add_text(result, field, content);
    } else if (wire == number) {
      add_number(result, field << 3 | wire);
      add_number(result, static_cast<uint32_t>(value));
    } else {
      add_number(result, field << 3 | wire);
      result += content;
    }
  });
  for (const auto& [field, message] : merged) {
    add_text(result, field, message);
  }
  return result;
}

// The normaliser's rules: a trie (Darts-clone double array) from character sequences to offsets in a text of
// zero-terminated replacements. Stored as: bytes of the trie (32 bits), trie, text.
class Rules {
 public:
  Rules(std::string_view blob, const std::string& name) : name_(name) {
    uint32_t trie_bytes = 0;
    check(blob.size() >= sizeof trie_bytes);
    std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
    blob.remove_prefix(sizeof trie_bytes);
    // Blocks have 256 units, so that either all of a unit's 256 possible children are in the table or none.
    check(trie_bytes > 0 && trie_bytes % (256 * sizeof(uint32_t)) == 0 && trie_bytes < blob.size());
    units_.resize(trie_bytes / sizeof(uint32_t));
    std::memcpy(units_.data(), blob.data(), trie_bytes);
    text_ = blob.substr(trie_bytes);
    check(text_.back() == '\0');
    below_.assign(units_.size(), -1);
    check(values_below(0, 0) <= kMaxMatches);
  }

  bool source_has_space() const { return source_has_space_; }
  bool replacement_has_space_mark() const { return text_.find(kSpaceMark) != std::string_view::npos; }

 private:
  static constexpr int kMaxMatches = 32;  // SentencePiece's limit for the matches of one lookup
  static constexpr int kMaxDepth = 256;   // bytes of a rule; also ends a cycle

  void check(bool good) const { require(good, "{} is damaged: its normalisation table is inconsistent", name_); }

  // The largest number of values on a path from this unit downwards. Every unit is visited once (suffixes are shared).
  int values_below(uint32_t position, int depth) {
    if (below_[position] >= 0) {
      return below_[position];
    }
    check(depth < kMaxDepth);
    const uint32_t unit = units_[position];
    const uint32_t base = position ^ ((unit >> 10) << ((unit & (1U << 9)) >> 6));
    check((base | 255) < units_.size());
    const bool has_value = (unit >> 8 & 1) == 1;
    check(!has_value || (units_[base] & 0x7FFFFFFF) < text_.size());
    int most = 0;
    for (uint32_t byte = 1; byte < 256; ++byte) {
      if ((units_[base ^ byte] & 0x800000FF) == byte) {
        source_has_space_ |= byte == ' ';
        most = std::max(most, values_below(base ^ byte, depth + 1));
      }
    }
    return below_[position] = most + (has_value ? 1 : 0);
  }

  const std::string& name_;
  std::vector<uint32_t> units_;
  std::vector<int> below_;
  std::string_view text_;
  bool source_has_space_ = false;
};

// The reasons, if any, why pieces may span a space and why they may come from something other than merges.
ModelTraits examine_pieces(std::string_view model, const std::string& name) {
  constexpr uint64_t kUserDefined = 4, kUnused = 5;
  bool has_mark = false;
  ModelTraits traits;
  const auto examine = [&](uint64_t field, Wire, uint64_t number, std::string_view text) {
    if (field == 3 && number == kUnused) {
      traits.words_depend = "it has unused pieces";
    }
    if (field == 3 && number == kUserDefined) {
      traits.not_only_merges = "it has user-defined pieces, which stay whole";
    }
    if (field == 1) {
      has_mark |= text == kSpaceMark;
      if (traits.words_depend.empty() &&
          (text.find(kSpaceMark, 1) != std::string_view::npos || text.find(' ') != std::string_view::npos)) {
        traits.words_depend = fmt::format("the piece '{}' spans a space", text);
      }
    }
  };
  for_each_field(model, name, [&](uint64_t field, Wire, uint64_t, std::string_view piece) {
    if (field == 1) {
      for_each_field(piece, name, examine);
    }
  });
  if (!has_mark && traits.words_depend.empty()) {
    traits.words_depend = "the space mark is not a piece";
  }
  return traits;
}

std::string examine_trainer(std::string_view spec, const std::string& name) {
  constexpr uint64_t kBpe = 2;
  uint64_t type = 1, suffix = 0;
  for_each_field(spec, name, [&](uint64_t field, Wire, uint64_t number, std::string_view) {
    type = field == 3 ? number : type;
    suffix = field == 24 ? number : suffix;
  });
  return type != kBpe ? "it is not a BPE model" : suffix != 0 ? "its pieces end with the space mark" : "";
}

std::string examine_normalizer(std::string_view spec, const std::string& name) {
  uint64_t prefix = 1, remove_extra = 1, escape = 1;
  std::string_view rules;
  for_each_field(spec, name, [&](uint64_t field, Wire, uint64_t number, std::string_view content) {
    rules = field == 2 ? content : rules;
    prefix = field == 3 ? number : prefix;
    remove_extra = field == 4 ? number : remove_extra;
    escape = field == 5 ? number : escape;
  });
  if (!rules.empty()) {
    const Rules checked(rules, name);
    if (checked.source_has_space() || checked.replacement_has_space_mark()) {
      return "its normalisation rules span a space";
    }
  }
  return prefix == 0 || remove_extra == 0 || escape == 0 ? "it keeps spaces as they are" : "";
}

}  // namespace

ExaminedModel examine_model(std::string_view original, const std::string& name) {
  require(!original.empty(), "{} is empty, not a SentencePiece model", name);
  std::string bytes = rewritten(original, kModel, name);
  std::string trainer = examine_trainer("", name), normalizer;
  for_each_field(bytes, name, [&](uint64_t field, Wire, uint64_t, std::string_view content) {
    if (field == 2) {
      trainer = examine_trainer(content, name);
    } else if (field == 3) {
      normalizer = examine_normalizer(content, name);
    } else if (field == 5) {
      examine_normalizer(content, name);  // the normaliser for decoding: only its safety matters
    }
  });
  ModelTraits traits = examine_pieces(bytes, name);
  if (!trainer.empty() || !normalizer.empty()) {
    traits.words_depend = !trainer.empty() ? trainer : normalizer;
  }
  return {std::move(bytes), std::move(traits)};
}

}  // namespace tandem::text
