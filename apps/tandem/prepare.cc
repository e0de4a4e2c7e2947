// tandem prepare: turns text files into a directory for training.
#include "data/prepare.h"

#include <cstdio>
#include <memory>

#include "commands.h"

namespace tandem::cli {

namespace {

void run_prepare(const data::PrepareConfig& config) {
  const data::PrepareStats stats = data::prepare(config);
  std::fputs(data::to_table(stats).c_str(), stdout);
  std::printf("written: %s\n", config.out.c_str());
}

}  // namespace

void add_prepare(Program& program) {
  const auto shared = std::make_shared<data::PrepareConfig>();  // shared with the action that runs after this
  data::PrepareConfig& config = *shared;
  program.add("prepare", "Cleans, shuffles and encodes parallel text for training.")
      .option("--source", config.source, "Source text: one or more files; plain, gz, xz, zst, or - for standard input")
      .option("--target", config.target, "Target text: as many files; each line translates that line of the source")
      .option("--tsv", config.tsv, "Instead of --source and --target: files with source, tab, target in every line")
      .option("--valid-source", config.valid_source, "Validation set, source side")
      .option("--valid-target", config.valid_target, "Validation set, target side")
      .option("--valid-size", config.valid_size,
              "Instead of a validation set: take this many pairs out of the training text")
      .option("--test-source", config.test_source, "Test set, source side")
      .option("--test-target", config.test_target, "Test set, target side")
      .option("-o,--out", config.out, "Directory to write")
      .required()
      .flag("--force", config.force, "Replace the directory if it exists")
      .option("--min-words", config.cleaning.min_words, "Drop pairs if a side has fewer words")
      .option("--max-words", config.cleaning.max_words, "Drop pairs if a side has more words; 0 = no limit")
      .option("--max-ratio", config.cleaning.max_ratio, "Drop pairs with a larger ratio of words; 0 = no limit")
      .flag("--deduplicate", config.deduplicate, "Keep only the first of equal pairs")
      .no_flag("--no-shuffle", config.shuffle, "Keep the order of the files")
      .option("--seed", config.seed, "Seed of the shuffle, of --valid-size and of --subword-dropout")
      .option("--vocab-size", config.training.vocab_size, "Tokens in the vocabulary, special ones included")
      .flag("--separate", config.separate, "One vocabulary for each language instead of a joint one")
      .option("--character-coverage", config.training.character_coverage,
              "Share of the text whose characters get a token of their own")
      .option("--tokenizer-words", config.training.words, "Learn subwords from this many most frequent words")
      .option("--tokenizer", config.tokenizer, "Use this SentencePiece model instead of learning one")
      .excludes({"--vocab-size", "--character-coverage", "--tokenizer-words"})
      .option("--target-tokenizer", config.target_tokenizer,
              "SentencePiece model of the target side, if it differs from the source side's")
      .option("--subword-dropout", config.subword_dropout,
              "Probability of leaving out a subword merge in the training text, against overfitting")
      .option("--copies", config.copies, "Copies of every training pair, each with different merges left out")
      .option("--threads", config.threads, "Number of threads; 0 = all cores")
      .example(
          "tandem prepare --source train.en.gz --target train.de.gz --valid-source dev.en --valid-target dev.de "
          "--vocab-size 32768 --out data/en-de")
      .run([shared] { run_prepare(*shared); });
}

}  // namespace tandem::cli
