#include "data/prepare.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/manifest.h"
#include "core/philox.h"
#include "core/threads.h"
#include "data/corpus.h"
#include "data/prepare_input.h"
#include "data/prepare_progress.h"
#include "data/prepared.h"
#include "text/subword_dropout.h"

namespace tandem::data {

namespace fs = std::filesystem;

namespace {

constexpr uint32_t kShufflePurpose = 0x5A, kDropoutPurpose = 0x10000;  // random streams' purposes; the latter + copy
constexpr size_t kChunk = 16384;                                       // pairs encoded between two writes
constexpr size_t kTaskPairs = 256;                                     // pairs of one task

bool replaceable(const fs::path& path) {
  return fs::is_directory(path) &&
         (fs::is_empty(path) || (has_manifest(path) && read_manifest(path).kind == kPreparedKind));
}

// Fails with a message that lists every impossible setting.
void check_config(const PrepareConfig& config) {
  std::string faults;
  const auto check = [&]<class... Args>(bool good, fmt::format_string<Args...> fault, Args&&... args) {
    if (!good) {
      faults.append(faults.empty() ? "" : "; ").append(fmt::format(fault, std::forward<Args>(args)...));
    }
  };
  const bool two = !config.source.empty() || !config.target.empty();
  check(two != !config.tsv.empty(), "give the training text either as --source and --target or as --tsv");
  check(config.source.empty() == config.target.empty(), "--source and --target belong together");
  check(config.valid_source.empty() == config.valid_target.empty(),
        "--valid-source and --valid-target belong together");
  check(config.test_source.empty() == config.test_target.empty(), "--test-source and --test-target belong together");
  check(config.valid_size >= 0, "--valid-size must not be negative, but is {}", config.valid_size);
  check(config.valid_size == 0 || config.valid_source.empty(), "give either --valid-size or --valid-source");
  check(!config.out.empty(), "--out names no directory");
  check(config.cleaning.min_words >= 1, "--min-words must be at least 1, but is {}", config.cleaning.min_words);
  check(config.cleaning.max_words == 0 || config.cleaning.max_words >= config.cleaning.min_words,
        "--max-words {} is below --min-words {}", config.cleaning.max_words, config.cleaning.min_words);
  check(config.cleaning.max_ratio == 0 || config.cleaning.max_ratio >= 1,
        "--max-ratio must be at least 1 (0 = no limit), but is {}", config.cleaning.max_ratio);
  check(config.training.vocab_size >= 8 && config.training.vocab_size <= 1'000'000,
        "--vocab-size must be 8 to 1000000, but is {}", config.training.vocab_size);
  check(config.training.character_coverage >= 0.9 && config.training.character_coverage <= 1,
        "--character-coverage must be 0.9 to 1, but is {}", config.training.character_coverage);
  check(config.training.words >= 1000, "--tokenizer-words must be at least 1000, but is {}", config.training.words);
  check(config.subword_dropout >= 0 && config.subword_dropout < 1,
        "--subword-dropout must be 0 or more and below 1, but is {}", config.subword_dropout);
  check(config.copies >= 1 && config.copies <= 1000, "--copies must be 1 to 1000, but is {}", config.copies);
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

uint64_t pair_hash(const std::string& source, const std::string& target) {
  Checksum sum;
  sum.add(source);
  sum.add("\n");
  sum.add(target);
  return sum.value();
}

// The pairs of one task, encoded.
struct Encoded {
  std::vector<int32_t> ids;       // the ids of all sentences, source and target in turn
  std::vector<uint32_t> lengths;  // the length of every sentence
  uint64_t bytes[2] = {0, 0};
  int64_t words[2] = {0, 0};
  int64_t empty = 0, held_out = 0;
};

// One call of prepare(), step by step.
class Preparation {
 public:
  Preparation(const PrepareConfig& config, NewDirectory& out)
      : config_(config), out_(out), store_(out.temporary() / "cleaned.scratch") {}

  PrepareStats run() {
    load_tokenizers();
    const TextSet valid = read_text_set(config_.valid_source, config_.valid_target);
    const TextSet test = read_text_set(config_.test_source, config_.test_target);
    stats_.valid_pairs = valid.pairs;
    stats_.test_pairs = test.pairs;
    add_text_set(valid, "valid", role::kValidSource, role::kValidTarget);
    add_text_set(test, "test", role::kTestSource, role::kTestTarget);
    read_text();
    order_and_hold_out();
    learn_tokenizers();
    encode();
    finish();
    return stats_;
  }

 private:
  bool learns() const { return config_.tokenizer.empty(); }

  void use_tokenizer(size_t i, text::Subwords subwords, const std::string& name) {
    subwords_[i] = std::move(subwords);
    if (config_.subword_dropout > 0) {
      dropout_[i].emplace(*subwords_[i], config_.subword_dropout, name);
    }
  }

  void load_tokenizers() {
    if (!learns()) {
      use_tokenizer(0, text::Subwords::load(config_.tokenizer), config_.tokenizer);
      if (!config_.target_tokenizer.empty()) {
        use_tokenizer(1, text::Subwords::load(config_.target_tokenizer), config_.target_tokenizer);
      }
    }
  }

  void add_file(const char* name, const char* role, const std::string& content) {
    write_file(out_.temporary() / name, content);
    manifest_.files.push_back({name, role, content.size(), checksum(content)});
  }

  void add_text_set(const TextSet& set, const char* name, const char* source_role, const char* target_role) {
    if (set.pairs > 0) {
      add_file(fmt::format("{}.source.txt", name).c_str(), source_role, set.source);
      add_file(fmt::format("{}.target.txt", name).c_str(), target_role, set.target);
    }
  }

  // Counts the pair as dropped, or stores it.
  void keep(std::string& source, std::string& target) {
    text::tidy(source);
    text::tidy(target);
    text::DropReason reason = text::check_pair(source, target, config_.cleaning);
    if (reason == text::DropReason::none && config_.deduplicate && !known_.insert(pair_hash(source, target)).second) {
      reason = text::DropReason::duplicate;
    }
    if (reason != text::DropReason::none) {
      ++stats_.dropped[static_cast<size_t>(reason)];
      return;
    }
    places_.push_back(store_.add(source, target));
    if (learns()) {
      counts_[0].add(source);
      counts_[config_.separate ? 1 : 0].add(target);
    }
  }

  void read_text() {
    const Stopwatch watch;
    StatusLine progress("reading", "pairs");
    PairReader reader(config_.source, config_.target, config_.tsv);
    std::string source, target;
    while (reader.next(source, target)) {
      ++stats_.raw_pairs;
      if (reader.cut()) {
        ++stats_.dropped[static_cast<size_t>(text::DropReason::oversized)];
      } else {
        keep(source, target);
      }
      if (stats_.raw_pairs % 4096 == 0) {
        progress.show(stats_.raw_pairs, reader.share());
      }
    }
    stats_[Side::source].raw_bytes = reader.source_bytes();
    stats_[Side::target].raw_bytes = reader.target_bytes();
    known_ = {};
    store_.end_writing();
    require(!places_.empty(), "no pair is left of {} after cleaning: {}", stats_.raw_pairs, dropped_text(stats_));
    stats_.seconds_reading = watch.seconds();
  }

  // Takes --valid-size random pairs out of the training text and puts the rest into its final order.
  void order_and_hold_out() {
    const auto valid = static_cast<size_t>(config_.valid_size);
    require(valid < places_.size(), "--valid-size {} leaves no training pairs: only {} are left after cleaning", valid,
            places_.size());
    if (config_.shuffle || valid > 0) {
      PhiloxStream random(config_.seed, kShufflePurpose);
      for (size_t i = places_.size() - 1; i > 0; --i) {
        std::swap(places_[i], places_[random.below(i + 1)]);
      }
    }
    TextSet set;
    std::string source, target;
    for (size_t i = places_.size() - valid; i < places_.size(); ++i) {
      store_.read(places_[i], source, target);
      held_out_.insert(pair_hash(source, target));
      set.add(source, target);
    }
    places_.resize(places_.size() - valid);
    require(places_.size() <= INT32_MAX / static_cast<size_t>(config_.copies),
            "{} pairs with {} copies of each are too many: training takes at most {} in all", places_.size(),
            config_.copies, INT32_MAX);
    if (!config_.shuffle) {
      std::sort(places_.begin(), places_.end());
    }
    if (valid > 0) {
      stats_.dropped[static_cast<size_t>(text::DropReason::held_out)] = config_.valid_size;
      stats_.valid_pairs = config_.valid_size;
      add_text_set(set, "valid", role::kValidSource, role::kValidTarget);
    }
  }

  void learn_tokenizers() {
    if (!learns()) {
      return;
    }
    const Stopwatch watch;
    const size_t models = config_.separate ? 2 : 1;
    for (size_t i = 0; i < models; ++i) {
      StatusLine progress("learning subwords", "");
      progress.show(0, -1);
      const std::string name = "the new tokenizer";
      use_tokenizer(i, text::Subwords::from_bytes(text::train_subwords(counts_[i], config_.training), name), name);
      const auto words = static_cast<int64_t>(counts_[i].size());
      stats_.tokenizer_words_all += words;
      stats_.tokenizer_words += std::min(words, config_.training.words);
      counts_[i] = {};
    }
    stats_.seconds_training = watch.seconds();
  }

  // Encodes the pairs at `places`; the first of them has the number `first` in the corpus.
  Encoded encoded(std::span<const uint64_t> places, size_t first, int64_t copy) const {
    Encoded result;
    std::string text[2];
    for (size_t i = 0; i < places.size(); ++i) {
      store_.read(places[i], text[0], text[1]);
      if (!held_out_.empty() && held_out_.contains(pair_hash(text[0], text[1]))) {
        ++result.held_out;
        continue;
      }
      PhiloxStream random(config_.seed, kDropoutPurpose + static_cast<uint32_t>(copy),
                          static_cast<uint32_t>(first + i));
      const auto encode = [&](size_t side) {
        const size_t model = subwords_[1] ? side : 0;
        if (dropout_[model]) {
          dropout_[model]->encode(text[side], random, result.ids);
        } else {
          subwords_[model]->encode(text[side], result.ids);
        }
      };
      const size_t before = result.ids.size();
      encode(0);
      const size_t middle = result.ids.size();
      encode(1);
      if (middle == before || result.ids.size() == middle) {  // such as text of zero-width spaces only
        result.ids.resize(before);
        ++result.empty;
        continue;
      }
      result.lengths.push_back(static_cast<uint32_t>(middle - before));
      result.lengths.push_back(static_cast<uint32_t>(result.ids.size() - middle));
      for (size_t side = 0; side < 2; ++side) {
        result.bytes[side] += text[side].size() + 1;
        result.words[side] += text::count_words(text[side]);
      }
    }
    return result;
  }

  void add(CorpusWriter& writer, const Encoded& piece, bool counts_text) {
    std::span<const int32_t> ids = piece.ids;
    for (size_t i = 0; i < piece.lengths.size(); i += 2) {
      const auto source = ids.first(piece.lengths[i]);
      const auto target = ids.subspan(piece.lengths[i], piece.lengths[i + 1]);
      writer.add(source, target);
      stats_[Side::source].add_sentence(source, text::kUnk);
      stats_[Side::target].add_sentence(target, text::kUnk);
      ids = ids.subspan(source.size() + target.size());
    }
    if (!counts_text) {
      return;
    }
    for (size_t side = 0; side < 2; ++side) {
      stats_.side[side].cleaned_bytes += piece.bytes[side];
      stats_.side[side].words += piece.words[side];
    }
    stats_.dropped[static_cast<size_t>(text::DropReason::empty)] += piece.empty;
    stats_.dropped[static_cast<size_t>(text::DropReason::held_out)] += piece.held_out;
  }

  void encode() {
    const Stopwatch watch;
    StatusLine progress("encoding", "pairs");
    stats_.joint = !subwords_[1];
    stats_[Side::source].vocabulary = subwords_[0]->size();
    stats_[Side::target].vocabulary = subwords_[stats_.joint ? 0 : 1]->size();
    const fs::path path = out_.temporary() / kCorpusFile;
    CorpusWriter writer(path, subwords_[0]->size(), subwords_[stats_.joint ? 0 : 1]->size());
    const std::span<const uint64_t> all = places_;
    const size_t count = all.size() * static_cast<size_t>(config_.copies);
    for (size_t done = 0; done < count;) {
      const size_t first = done % all.size();
      const auto copy = static_cast<int64_t>(done / all.size());
      const auto chunk = all.subspan(first, std::min(kChunk, all.size() - first));
      std::vector<Encoded> pieces((chunk.size() + kTaskPairs - 1) / kTaskPairs);
      Threads(config_.threads).parallel_for(std::ssize(pieces), [&](int64_t i) {
        const size_t begin = static_cast<size_t>(i) * kTaskPairs;
        const auto own = chunk.subspan(begin, std::min(kTaskPairs, chunk.size() - begin));
        pieces[static_cast<size_t>(i)] = encoded(own, first + begin, copy);
      });
      for (const Encoded& piece : pieces) {
        add(writer, piece, copy == 0);
      }
      done += chunk.size();
      progress.show(static_cast<int64_t>(done), static_cast<double>(done) / static_cast<double>(count));
    }
    stats_.copies = config_.copies;
    stats_.subword_dropout = config_.subword_dropout;
    stats_.pairs = writer.pairs();
    require(stats_.pairs > 0, "no pair is left of {} after cleaning: {}", stats_.raw_pairs, dropped_text(stats_));
    for (SideStats& side : stats_.side) {
      side.encoded_bytes = static_cast<uint64_t>(side.tokens) * static_cast<uint64_t>(writer.id_bytes());
    }
    writer.finish();
    manifest_.files.push_back({kCorpusFile, role::kCorpus, writer.bytes(), writer.checksum()});
    stats_.seconds_encoding = watch.seconds();
  }

  void finish() {
    add_file(stats_.joint ? kJointTokenizerFile : kSourceTokenizerFile, role::kSourceTokenizer, subwords_[0]->bytes());
    if (!stats_.joint) {
      add_file(kTargetTokenizerFile, role::kTargetTokenizer, subwords_[1]->bytes());
    }
    write_file(out_.temporary() / "manifest.json", to_json(manifest_));
    stats_.seconds = total_.seconds();
    write_file(out_.temporary() / kStatisticsFile, to_json(stats_));
  }

  const PrepareConfig& config_;
  NewDirectory& out_;
  PairStore store_;
  Stopwatch total_;
  PrepareStats stats_;
  Manifest manifest_{kPreparedKind, {}};
  std::vector<uint64_t> places_;                    // positions of the cleaned pairs in the store
  std::unordered_set<uint64_t> known_;              // hashes of all pairs, for --deduplicate
  std::unordered_set<uint64_t> held_out_;           // hashes of the validation pairs taken out of the training text
  text::WordCounts counts_[2];                      // if joint, only the first is used
  std::optional<text::Subwords> subwords_[2];       // likewise
  std::optional<text::SubwordDropout> dropout_[2];  // if there is subword dropout; likewise
};

}  // namespace

PrepareStats prepare(const PrepareConfig& config) {
  check_config(config);
  const Signals signals;  // created before any directory, so that a signal leaves none behind
  NewDirectory out(config.out, config.force);
  const EndOnSignal stoppable(signals, out.temporary());
  PrepareStats stats;
  {
    Preparation preparation(config, out);
    stats = preparation.run();
  }
  out.commit();
  return stats;
}

}  // namespace tandem::data
