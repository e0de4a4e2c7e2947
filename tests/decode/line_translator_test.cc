// Lines in, lines out: order, empty and too long lines, n-best, windows. The model is random; what is checked is that
// every line gets its own translation.
#include "decode/line_translator.h"

#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include "backend/forwarding.h"
#include "core/philox.h"
#include "decode/translate_stream.h"

namespace tandem {
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
      : subwords(Subwords::from_bytes(tokenizer_bytes(), "test tokenizer")),
        backend(make_cpu_backend(1)),
        model(*backend, config()),
        masters(static_cast<size_t>(model.parameters().flat_size())),
        decoder(*backend, model, weights()) {}

  ModelConfig config() const {
    ModelConfig small;
    small.source_vocabulary = small.target_vocabulary = subwords.size();
    small.encoder_layers = small.decoder_layers = 1;
    small.width = 16;
    small.heads = 2;
    small.feed_forward = 32;
    small.max_length = 40;
    return small;
  }

  Weights weights() {
    const View view = host_view(masters.data(), 1, model.parameters().flat_size());
    initialize(view, model.parameters(), 4);
    return {view, view};
  }

  LineTranslator translator(const TranslateOptions& options) { return {decoder, subwords, subwords, options}; }

  static TranslateOptions options(int n_best = 1, int64_t batch = 64) {
    TranslateOptions result;
    result.decode.n_best = n_best;
    result.decode.max_extra = 4;
    result.batch = batch;
    return result;
  }

  Subwords subwords;
  std::unique_ptr<Backend> backend;
  Transformer model;
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
  const std::vector<std::string> together = translator(options()).translate_best(lines);
  ASSERT_EQ(together.size(), lines.size());
  size_t with_text = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::vector<std::string> one = {lines[i]};
    EXPECT_EQ(translator(options(1, 1)).translate_best(one).front(), together[i]) << "line " << i;
    with_text += !together[i].empty();
    if (lines[i].find_first_not_of(" \t") == std::string::npos) {
      EXPECT_EQ(together[i], "");
    }
  }
  EXPECT_GT(with_text, 20U);
  TranslateOptions few_tokens = options(1, 7);
  few_tokens.batch_tokens = 10;
  EXPECT_EQ(translator(few_tokens).translate_best(lines), together);
  for (const int threads : {1, 4}) {
    TranslateOptions with_threads = options();
    with_threads.threads = threads;
    EXPECT_EQ(translator(with_threads).translate_best(lines), together) << threads << " threads";
  }
}

TEST_F(TranslatorTest, TooLongLinesAreTranslatedInPartsWithAWarning) {
  const std::vector<std::string> lines = {sentence(1, 3), sentence(2, 200), sentence(3, 3)};
  ::testing::internal::CaptureStderr();
  const auto results = translator(options(3)).translate(lines, 100);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("line 101"), std::string::npos) << said;
  EXPECT_EQ(said.find("line 100"), std::string::npos) << said;
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(results[0].size(), 3U);
  EXPECT_EQ(results[1].size(), 1U) << "a line in parts has one translation";
  EXPECT_EQ(results[2].size(), 3U);
  const std::vector<std::string> last = {lines[2]};
  EXPECT_EQ(results[2].front().text, translator(options()).translate_best(last).front());
}

TEST_F(TranslatorTest, TenThousandWordsAndHostileBytes) {
  const std::vector<std::string> lines = {sentence(7, 10000), std::string(5000, 'x'), std::string(3000, '\xFF'),
                                          std::string("a\0b", 3)};
  TranslateOptions quick = options();
  quick.decode.beam = 1;
  ::testing::internal::CaptureStderr();
  const auto best = translator(quick).translate_best(lines);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("line 1 has"), std::string::npos);
  ASSERT_EQ(best.size(), 4U);
  for (const std::string& text : best) {
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

TEST_F(TranslatorTest, StreamsInWindowsKeepOrderAndNumbers) {
  const std::vector<std::string> lines = mixed_lines();
  const std::vector<std::string> expected = translator(options()).translate_best(lines);
  for (const int64_t window : {1, 7, 1000}) {
    size_t next = 0;
    const auto next_line = [&](std::string& line) {
      line = next < lines.size() ? lines[next] : "";
      return next++ < lines.size();
    };
    std::string output;
    int writes = 0;
    LineTranslator subject = translator(options());
    const StreamSummary summary = translate_stream(subject, next_line, window, OutputFormat::text,
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

TEST_F(TranslatorTest, BeforeBatchMayStopTheWork) {
  TranslateOptions stopping = options(1, 2);
  int batches = 0;
  stopping.before_batch = [&batches] { require(++batches < 3, "stop"); };
  const std::vector<std::string> lines = mixed_lines();
  EXPECT_THROW(translator(stopping).translate(lines), Error);
  EXPECT_EQ(batches, 3);
  EXPECT_THROW(translator(options(1, -1)), Error);
  EXPECT_THROW(translator(options(5)), Error);
}

TEST(Formatted, TextScoresAndNBest) {
  const std::vector<Translation> two = {{"eins zwei", -0.5, -1.25}, {"zwei", -0.75, -2}};
  EXPECT_EQ(formatted(two, 12, OutputFormat::text), "eins zwei\n");
  EXPECT_EQ(formatted(two, 12, OutputFormat::scores), "-0.500000\t-1.250000\teins zwei\n");
  EXPECT_EQ(formatted(two, 12, OutputFormat::n_best),
            "12 ||| eins zwei ||| -0.500000 ||| -1.250000\n12 ||| zwei ||| -0.750000 ||| -2.000000\n");
}

// A device with so little memory that a whole batch does not fit.
class SmallMemory final : public ForwardingBackend {
 public:
  SmallMemory(Backend& inner, size_t most) : ForwardingBackend(inner), most_(most) {}
  Buffer allocate(size_t bytes) override {
    if (bytes > most_) {
      ++refusals;
      throw OutOfMemory("out of the test's memory");
    }
    return ForwardingBackend::allocate(bytes);
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
  const std::vector<std::string> expected = translator(options()).translate_best(lines);

  SmallMemory small(*backend, 3 << 20);
  Transformer same(small, config());
  BatchDecoder short_of_memory(small, same, weights());
  LineTranslator careful(short_of_memory, subwords, subwords, options(1, 600));
  EXPECT_EQ(careful.translate_best(lines), expected);
  EXPECT_GT(small.refusals, 0);
  EXPECT_LT(careful.batch(), 600);
  EXPECT_GT(careful.batch(), 1);

  SmallMemory none(*backend, 1000 << 10);  // not even an arena's smallest piece
  Transformer nothing(none, config());
  BatchDecoder without(none, nothing, weights());
  LineTranslator fails(without, subwords, subwords, options());
  EXPECT_THROW(fails.translate_best(lines), OutOfMemory);
}

}  // namespace
}  // namespace tandem
