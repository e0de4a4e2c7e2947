// Lines in, lines out: order, empty and too long lines, n-best, windows. The model is random; what is checked is that
// every line gets its own translation.
#include "decode/line_translator.h"

#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include "backend/forwarding.h"
#include "core/philox.h"
#include "decode/translate_stream.h"

namespace tandem::decode {
namespace {

const std::vector<std::string> kWords = {"one",   "two",   "three", "four", "five",   "six",   "seven",
                                         "eight", "nine",  "ten",   "and",  "street", "house", "garden",
                                         "river", "green", "blue",  "old",  "new",    "walks"};

std::string sentence(uint32_t number, uint64_t words) {
  PhiloxStream random(5, 6, number);
  std::string text;
  for (uint64_t i = 0; i < words; ++i) {
    text += (i == 0 ? "" : " ") + kWords[random.below(kWords.size())] + (i % 7 == 6 ? "." : "");
  }
  return text;
}

class Sentences : public sentencepiece::SentenceIterator {
 public:
  bool done() const override { return number_ == 300; }
  void Next() override { text_ = sentence(++number_, 8); }
  const std::string& value() const override { return text_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  uint32_t number_ = 0;
  std::string text_ = sentence(0, 8);
};

std::string tokenizer_bytes() {
  Sentences sentences;
  std::string bytes;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      "--model_type=bpe --vocab_size=60 --pad_id=0 --eos_id=1 --bos_id=2 --unk_id=3 --minloglevel=2 "
      "--hard_vocab_limit=false",
      &sentences, &bytes);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return bytes;
}

class TranslatorTest : public ::testing::Test {
 protected:
  TranslatorTest()
      : subwords(text::Subwords::from_bytes(tokenizer_bytes(), "test tokenizer")),
        backend(backend::make_cpu_backend(1)),
        model(*backend, config()),
        masters(static_cast<size_t>(model.parameters().flat_size())),
        decoder(*backend, model, weights()) {}

  model::ModelConfig config() const {
    model::ModelConfig small;
    small.source_vocabulary = small.target_vocabulary = subwords.size();
    small.encoder_layers = small.decoder_layers = 1;
    small.width = 16;
    small.heads = 2;
    small.feed_forward = 32;
    small.max_length = 40;
    return small;
  }

  nn::Weights weights() {
    const View view = host_view(masters.data(), 1, model.parameters().flat_size());
    initialize(view, model.parameters(), 4);
    return {view, view};
  }

  LineTranslator translator(int threads = 0) { return {decoder, subwords, subwords, threads}; }

  static TranslateOptions options(int n_best = 1, int64_t batch = 64) {
    TranslateOptions result;
    result.search.n_best = n_best;
    result.search.max_extra = 4;
    result.call.batch = batch;
    return result;
  }

  text::Subwords subwords;
  std::unique_ptr<backend::Backend> backend;
  model::Transformer model;
  std::vector<float> masters;
  BatchDecoder decoder;
};

std::vector<std::string> mixed_lines() {
  std::vector<std::string> lines;
  for (uint32_t i = 0; i < 60; ++i) {
    lines.push_back(i % 9 == 4 ? "" : i % 13 == 5 ? " \t " : sentence(i, 1 + i % 6));
  }
  return lines;
}

TEST_F(TranslatorTest, EveryLineGetsItsOwnTranslationWhateverTheBatch) {
  const std::vector<std::string> lines = mixed_lines();
  const std::vector<std::string> together = translator().translate_best(lines, options());
  ASSERT_EQ(together.size(), lines.size());
  size_t with_text = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::vector<std::string> one = {lines[i]};
    EXPECT_EQ(translator().translate_best(one, options(1, 1)).front(), together[i]) << "line " << i;
    with_text += !together[i].empty();
    if (lines[i].find_first_not_of(" \t") == std::string::npos) {
      EXPECT_EQ(together[i], "");
    }
  }
  EXPECT_GT(with_text, 20U);
  TranslateOptions few_tokens = options(1, 7);
  few_tokens.call.batch_tokens = 10;
  EXPECT_EQ(translator().translate_best(lines, few_tokens), together);
  for (const int threads : {1, 4}) {
    EXPECT_EQ(translator(threads).translate_best(lines, options()), together) << threads << " threads";
  }
}

TEST_F(TranslatorTest, TooLongLinesAreTranslatedInPartsWithAWarning) {
  const std::vector<std::string> lines = {sentence(1, 3), sentence(2, 200), sentence(3, 3)};
  ::testing::internal::CaptureStderr();
  TranslateOptions from_100 = options(3);
  from_100.first_line = 100;
  const auto results = translator().translate(lines, from_100);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("line 101"), std::string::npos) << said;
  EXPECT_EQ(said.find("line 100"), std::string::npos) << said;
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(results[0].size(), 3U);
  EXPECT_EQ(results[1].size(), 1U) << "a line in parts has one translation";
  EXPECT_EQ(results[2].size(), 3U);
  const std::vector<std::string> last = {lines[2]};
  EXPECT_EQ(results[2].front().text, translator().translate_best(last, options()).front());
}

TEST_F(TranslatorTest, TenThousandWordsAndHostileBytes) {
  const std::vector<std::string> lines = {sentence(7, 10000), std::string(5000, 'x'), std::string(3000, '\xFF'),
                                          std::string("a\0b", 3)};
  TranslateOptions quick = options();
  quick.search.beam = 1;
  ::testing::internal::CaptureStderr();
  const auto best = translator().translate_best(lines, quick);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("line 1 has"), std::string::npos);
  ASSERT_EQ(best.size(), 4U);
  for (const std::string& text : best) {
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

TEST_F(TranslatorTest, StreamsInWindowsKeepOrderAndNumbers) {
  const std::vector<std::string> lines = mixed_lines();
  const std::vector<std::string> expected = translator().translate_best(lines, options());
  for (const int64_t window : {1, 7, 1000}) {
    size_t next = 0;
    const auto next_line = [&](std::string& line) {
      line = next < lines.size() ? lines[next] : "";
      return next++ < lines.size();
    };
    std::string output;
    int writes = 0;
    LineTranslator subject = translator();
    const auto translate = [&](std::span<const std::string> some, int64_t first_line) {
      TranslateOptions numbered = options();
      numbered.first_line = first_line;
      return subject.translate(some, numbered);
    };
    const StreamSummary summary = translate_stream(translate, next_line, window, OutputFormat::text,
                                                   [&](std::string_view text) { output += text, ++writes; });
    std::string joined;
    for (const std::string& line : expected) {
      joined += line + "\n";
    }
    EXPECT_EQ(output, joined);
    EXPECT_EQ(summary.lines, 60);
    EXPECT_GT(summary.output_pieces, 40);
    EXPECT_EQ(writes, window == 1 ? 60 : window == 7 ? 9 : 1);
  }
}

TEST_F(TranslatorTest, TellsItsProgressAndStops) {
  const std::vector<std::string> lines = mixed_lines();
  TranslateOptions watched = options(1, 2);
  std::vector<CallProgress> told;
  watched.call.on_progress = [&told](const CallProgress& progress) { told.push_back(progress); };
  translator().translate(lines, watched);
  ASSERT_GT(told.size(), 20U);
  EXPECT_EQ(told.front().sentences, 0);
  EXPECT_EQ(told.front().pieces, 0);
  for (size_t i = 1; i < told.size(); ++i) {
    const int64_t batch = told[i].sentences - told[i - 1].sentences;
    EXPECT_TRUE(batch == 1 || batch == 2) << batch;
    EXPECT_GT(told[i].pieces, told[i - 1].pieces);
    EXPECT_EQ(told[i].all_sentences, told[0].all_sentences);
  }
  EXPECT_EQ(told.back().sentences, told.back().all_sentences);
  EXPECT_EQ(told.back().pieces, told.back().all_pieces);

  std::stop_source stop;
  TranslateOptions stopping = options(1, 2);
  int batches = 0;
  stopping.call.stop = stop.get_token();
  stopping.call.on_progress = [&](const CallProgress& progress) {
    EXPECT_EQ(progress.sentences, 2 * batches);
    if (++batches == 3) {
      stop.request_stop();
    }
  };
  LineTranslator subject = translator();
  EXPECT_THROW(subject.translate(lines, stopping), Error);
  EXPECT_EQ(batches, 3) << "nothing is translated after a stop";
  stopping.call = options().call;
  EXPECT_EQ(subject.translate_best(lines, stopping), translator().translate_best(lines, options()));
}

TEST_F(TranslatorTest, ImpossibleOptionsAreRefused) {
  const std::vector<std::string> lines = mixed_lines();
  EXPECT_THROW(translator().translate(lines, options(1, -1)), Error);
  EXPECT_THROW(translator().translate(lines, options(5)), Error);
  TranslateOptions tokens = options();
  tokens.call.batch_tokens = -1;
  EXPECT_THROW(translator().translate(lines, tokens), Error);
}

TEST_F(TranslatorTest, PiecesAndTokensAreThoseOfTheText) {
  const std::vector<std::string> lines = {sentence(1, 3), sentence(2, 200), ""};
  TranslateOptions with_pieces = options(4);
  with_pieces.pieces = true;
  ::testing::internal::CaptureStderr();  // the second line is too long
  const auto results = translator().translate(lines, with_pieces);
  const auto without = translator().translate(lines, options(4));
  ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(results[0].size(), 4U);
  for (size_t line = 0; line < lines.size(); ++line) {
    for (size_t i = 0; i < results[line].size(); ++i) {
      const Translation& one = results[line][i];
      std::string joined;
      for (const std::string& piece : one.pieces) {
        joined += piece;
      }
      for (size_t mark = joined.find("\u2581"); mark != std::string::npos; mark = joined.find("\u2581")) {
        joined.replace(mark, 3, " ");  // SentencePiece's mark of a word's beginning
      }
      joined.erase(0, joined.find_first_not_of(' '));
      if (line == 0) {
        EXPECT_EQ(joined, one.text);
        const auto pieces = static_cast<int64_t>(one.pieces.size());
        EXPECT_TRUE(one.tokens == pieces || one.tokens == pieces + 1) << one.tokens << " for " << pieces;
        EXPECT_NEAR(one.score, one.log_probability / length_penalty(one.tokens, 0.6), 1e-12);
        EXPECT_TRUE(i == 0 || one.score <= results[line][i - 1].score) << "best first";
      }
      EXPECT_EQ(one.text, without[line][i].text);
      EXPECT_EQ(one.tokens, without[line][i].tokens);
      EXPECT_TRUE(without[line][i].pieces.empty());
    }
  }
  EXPECT_GE(results[1][0].tokens, static_cast<int64_t>(results[1][0].pieces.size()));
  EXPECT_TRUE(results[2][0].pieces.empty());
  EXPECT_EQ(results[2][0].tokens, 0);
}

TEST(Formatted, TextScoresAndNBest) {
  const std::vector<Translation> two = {{"eins zwei", -0.5, -1.25, 3, {}}, {"zwei", -0.75, -2, 2, {}}};
  EXPECT_EQ(formatted(two, 12, OutputFormat::text), "eins zwei\n");
  EXPECT_EQ(formatted(two, 12, OutputFormat::scores), "-0.500000\t-1.250000\teins zwei\n");
  EXPECT_EQ(formatted(two, 12, OutputFormat::n_best),
            "12 ||| eins zwei ||| -0.500000 ||| -1.250000\n12 ||| zwei ||| -0.750000 ||| -2.000000\n");
}

// A device with so little memory that a whole batch does not fit.
class SmallMemory final : public backend::ForwardingBackend {
 public:
  SmallMemory(backend::Backend& inner, size_t most) : backend::ForwardingBackend(inner), most_(most) {}
  Buffer allocate(size_t bytes) override {
    if (bytes > most_) {
      ++refusals;
      throw backend::OutOfMemory("out of the test's memory");
    }
    return backend::ForwardingBackend::allocate(bytes);
  }
  int refusals = 0;

 private:
  size_t most_;
};

TEST_F(TranslatorTest, DecodesFewerSentencesWhereMemoryIsShort) {
  std::vector<std::string> lines;
  for (uint32_t i = 0; i < 600; ++i) {
    lines.push_back(sentence(i, 1 + i % 9));
  }
  const std::vector<std::string> expected = translator().translate_best(lines, options());

  SmallMemory small(*backend, 3 << 20);
  model::Transformer same(small, config());
  BatchDecoder short_of_memory(small, same, weights());
  LineTranslator careful(short_of_memory, subwords, subwords, 0);
  TranslateOptions all_at_once = options(1, 600);
  int64_t largest = 0, before = 0;
  all_at_once.call.on_progress = [&](const CallProgress& progress) {
    largest = std::max(largest, progress.sentences - before);
    before = progress.sentences;
  };
  EXPECT_EQ(careful.translate_best(lines, all_at_once), expected);
  EXPECT_GT(small.refusals, 0);
  EXPECT_LT(largest, 600);
  EXPECT_GT(largest, 1);
  const int64_t first_call = std::exchange(largest, before = 0);
  EXPECT_EQ(careful.translate_best(lines, all_at_once), expected);
  EXPECT_LE(largest, first_call) << "what the memory holds is remembered";

  SmallMemory none(*backend, 1000 << 10);  // not even an arena's smallest piece
  model::Transformer nothing(none, config());
  BatchDecoder without(none, nothing, weights());
  LineTranslator fails(without, subwords, subwords, 0);
  EXPECT_THROW(fails.translate_best(lines, options()), backend::OutOfMemory);
}

}  // namespace
}  // namespace tandem::decode
