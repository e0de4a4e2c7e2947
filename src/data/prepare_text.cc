#include "data/prepare_text.h"

#include <filesystem>

#include "core/error.h"
#include "core/log.h"
#include "core/manifest.h"
#include "data/prepare_pairs.h"
#include "data/prepared_files.h"

namespace tandem::data {

namespace fs = std::filesystem;

namespace {

constexpr size_t kLargestSet = size_t{1} << 30;

bool replaceable(const fs::path& path) {
  return fs::is_directory(path) &&
         (fs::is_empty(path) || (has_manifest(path) && read_manifest(path).kind == kPreparedKind));
}

}  // namespace

void TextSet::add(const std::string& source_line, const std::string& target_line) {
  source.append(source_line).append("\n");
  target.append(target_line).append("\n");
  ++pairs;
}

TextSet read_text_set(const std::string& source, const std::string& target) {
  TextSet set;
  if (source.empty()) {
    return set;
  }
  PairReader reader({source}, {target}, {});
  std::string left, right;
  int64_t empty = 0;
  while (reader.next(left, right)) {
    require(!reader.cut(), "{} or its translation is longer than {} bytes", reader.place(), LineReader::kLongestLine);
    require(text::valid_utf8(left) && text::valid_utf8(right), "{} or its translation in {} is not valid UTF-8",
            reader.place(), target);
    require(set.source.size() + set.target.size() < kLargestSet, "{} is too large for a validation or test set",
            source);
    empty += left.empty() || right.empty() ? 1 : 0;
    set.add(left, right);
  }
  if (empty > 0) {
    log::warning("{} of {} pairs in {} and {} have an empty side", empty, set.pairs, source, target);
  }
  return set;
}

void check_config(const PrepareConfig& config) {
  std::string faults;
  const auto check = [&](bool good, const std::string& fault) {
    if (!good) {
      faults.append(faults.empty() ? "" : "; ").append(fault);
    }
  };
  const bool two = !config.source.empty() || !config.target.empty();
  check(two != !config.tsv.empty(), "give the training text either as --source and --target or as --tsv");
  check(config.source.empty() == config.target.empty(), "--source and --target belong together");
  check(config.valid_source.empty() == config.valid_target.empty(),
        "--valid-source and --valid-target belong together");
  check(config.test_source.empty() == config.test_target.empty(), "--test-source and --test-target belong together");
  check(config.valid_size >= 0, fmt::format("--valid-size must not be negative, but is {}", config.valid_size));
  check(config.valid_size == 0 || config.valid_source.empty(), "give either --valid-size or --valid-source");
  check(!config.out.empty(), "--out names no directory");
  check(config.cleaning.min_words >= 1,
        fmt::format("--min-words must be at least 1, but is {}", config.cleaning.min_words));
  check(config.cleaning.max_words == 0 || config.cleaning.max_words >= config.cleaning.min_words,
        fmt::format("--max-words {} is below --min-words {}", config.cleaning.max_words, config.cleaning.min_words));
  check(config.cleaning.max_ratio == 0 || config.cleaning.max_ratio >= 1,
        fmt::format("--max-ratio must be at least 1 (0 = no limit), but is {}", config.cleaning.max_ratio));
  check(config.training.vocab_size >= 8 && config.training.vocab_size <= 1'000'000,
        fmt::format("--vocab-size must be 8 to 1000000, but is {}", config.training.vocab_size));
  check(config.training.character_coverage >= 0.9 && config.training.character_coverage <= 1,
        fmt::format("--character-coverage must be 0.9 to 1, but is {}", config.training.character_coverage));
  check(config.training.words >= 1000,
        fmt::format("--tokenizer-words must be at least 1000, but is {}", config.training.words));
  check(config.subword_dropout >= 0 && config.subword_dropout < 1,
        fmt::format("--subword-dropout must be 0 or more and below 1, but is {}", config.subword_dropout));
  check(config.copies >= 1 && config.copies <= 1000,
        fmt::format("--copies must be 1 to 1000, but is {}", config.copies));
  check(config.copies <= 1 || config.subword_dropout > 0,
        "--copies are for --subword-dropout, which makes them differ");
  check(config.target_tokenizer.empty() || !config.tokenizer.empty(), "--target-tokenizer needs --tokenizer");
  check(!config.separate || config.tokenizer.empty(),
        "--separate is for new tokenizers; give --target-tokenizer instead");
  require(faults.empty(), "{}", faults);
  if (fs::exists(fs::symlink_status(config.out))) {
    require(replaceable(config.out), "{} exists and is not a prepared directory; choose another --out",
            config.out.string());
    require(config.force, "{} exists already; choose another --out, or add --force to replace it", config.out.string());
  }
}

}  // namespace tandem::data
